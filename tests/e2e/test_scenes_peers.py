"""The four scenes with the agents of other systems, and through a chain: board, host, another host's facade, a model behind it."""

import pytest
from peers.chain import CHAINS
from peers.scenes import all_played
from peers.subjects import SUBJECTS

pytestmark = pytest.mark.timeout(110)

SYSTEMS = ("aitp", "omnia")


async def test_scenes_happen_with_every_system_and_through_a_facade(tmp_path):
    kinds = {**{name: SUBJECTS[name] for name in SYSTEMS}, **CHAINS}
    assert await all_played(kinds, tmp_path) == {}
