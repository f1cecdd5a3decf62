"""The agents by name."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from vrt_host.agents import registry
from vrt_host.agents.base import PCM16_24K, Abilities, Format
from vrt_host.agents.echo import EchoAgent
from vrt_host.agents.scripted import ScriptedAgent
from vrt_host.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def test_each_call_makes_another_agent():
    make = registry.factory("echo")
    assert isinstance(make(), EchoAgent)
    assert make() is not make()


def test_script_is_read_once_and_each_session_has_its_own_agent(tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"rules": []}')
    make = registry.factory("scripted", script=path)
    path.unlink()
    assert isinstance(make(), ScriptedAgent)
    assert make() is not make()


def test_scripted_needs_a_script_and_the_others_have_none(tmp_path):
    with pytest.raises(UsageError, match="--script FILE"):
        registry.factory("scripted")
    with pytest.raises(UsageError, match="--script is for"):
        registry.factory("echo", script=tmp_path / "s.json")


def test_unknown_agent_is_refused_with_the_names():
    with pytest.raises(UsageError, match="echo, scripted, local"):
        registry.factory("nobody")


def test_missing_extra_is_one_line_that_says_what_to_install(monkeypatch):
    class Finder:
        def find_spec(self, name, path, target=None):
            if name == registry.LOCAL:
                raise ModuleNotFoundError("no onnx", name="onnxruntime")

    monkeypatch.delitem(sys.modules, registry.LOCAL, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(UsageError, match=r"'onnxruntime'.*pip install \"vrt-edge\[local\]\""):
        registry.factory("local")


@pytest.mark.parametrize("name", registry.ADAPTERS)
def test_missing_package_of_an_adapter_names_extras_that_there_are(monkeypatch, name):
    module = registry.ADAPTERS[name][0]

    class Finder:
        def find_spec(self, found, path, target=None):
            if found == module:
                raise ModuleNotFoundError("none", name="pydantic")

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(UsageError) as told:
        registry.factory(name)
    extras = re.search(r'pip install "vrt-edge\[(.*)\]"', str(told.value))[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(extras) <= project["optional-dependencies"].keys()
    assert f"vrt-edge[{','.join(extras)}]" in registry.AGENTS[name]


def test_fault_of_ours_is_not_taken_for_a_missing_extra(monkeypatch):
    class Finder:
        def find_spec(self, name, path, target=None):
            if name == registry.LOCAL:
                raise ModuleNotFoundError("a bug", name="vrt_host.nothing")

    monkeypatch.delitem(sys.modules, registry.LOCAL, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError):
        registry.factory("local")


def test_prepare_loads_what_sessions_share_before_the_first():
    loaded = []

    class Slow:
        @staticmethod
        def prepare():
            loaded.append(True)

    registry.prepare(Slow)
    registry.prepare(registry.factory("echo"))
    assert loaded == [True]


OPUS = Format("opus", 48_000)


@pytest.mark.parametrize(
    ("inputs", "outputs"), [((OPUS,), (PCM16_24K,)), ((PCM16_24K,), (OPUS,)), ((OPUS,), (OPUS,))]
)
def test_agent_of_opus_alone_is_refused_at_the_start_where_opus_is_not_installed(
    monkeypatch, inputs, outputs
):
    class Packets(EchoAgent):
        abilities = Abilities(interruption="cancel", inputs=inputs, outputs=outputs)

    registry.prepare(Packets)
    monkeypatch.setitem(sys.modules, "opuslib_next", None)
    with pytest.raises(UsageError, match=r'pip install "vrt-edge\[opus\]"'):
        registry.prepare(Packets)


def test_agent_that_can_do_more_than_opus_needs_no_opus(monkeypatch):
    class Both(EchoAgent):
        abilities = Abilities(interruption="cancel", inputs=(OPUS, PCM16_24K), outputs=(PCM16_24K, OPUS))

    monkeypatch.setitem(sys.modules, "opuslib_next", None)
    registry.prepare(Both)
    registry.prepare(EchoAgent)


def test_host_of_a_small_agent_loads_nothing_large():
    """numpy alone is 15 MiB of each host."""
    code = (
        "import sys; from vrt_host.commands import serve; from vrt_host.agents import registry\n"
        "make = registry.factory('echo'); registry.prepare(make); make()\n"
        "print(*sys.modules.keys() & {'aiohttp', 'cryptography', 'matplotlib', 'numpy', 'pydantic', 'rich', 'samplerate'})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
