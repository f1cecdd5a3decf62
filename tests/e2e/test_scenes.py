"""The four scenes of `vrt demo` with the models' adapters; `peers/scenes.py` plays them. No more at once than two cores can."""

import pytest
from peers.scenes import all_played
from peers.subjects import SUBJECTS

pytestmark = pytest.mark.timeout(110)

MODELS = ("openai", "openai_live", "gemini", "chat")


async def test_scenes_happen_with_every_model(tmp_path):
    assert await all_played({name: SUBJECTS[name] for name in MODELS}, tmp_path) == {}
