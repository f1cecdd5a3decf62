"""The four scenes with the agents of other systems, and through a chain: board, host, another host's facade, a model behind it."""

import pytest
from peers.chain import CHAINS
from peers.scenes import all_played
from peers.subjects import SUBJECTS

pytestmark = pytest.mark.timeout(110)

SYSTEMS = ("aitp", "omnia", "fish")
KINDS = {"systems": {name: SUBJECTS[name] for name in SYSTEMS}, "chains": CHAINS}


@pytest.mark.parametrize("kinds", KINDS)
async def test_scenes_happen_with_every_system_and_through_a_facade(tmp_path, kinds):
    assert await all_played(KINDS[kinds], tmp_path) == {}
