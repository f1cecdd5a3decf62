"""The profile that servers are steered by: the documentation, the script and the scenarios know the same texts."""

import json
import re
from pathlib import Path

from vrt_host.agents.script import load
from vrt_host.commands.serve import PROFILE
from vrt_host.conformance import server_cases
from vrt_host.conformance.server_cases.vectors import EITHER, vectors

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "conformance.md").read_text("utf-8")


def known():
    """The words of the answer to `test profile`."""
    (rule,) = [
        one
        for one in json.loads(PROFILE.read_text("utf-8"))["rules"]
        if one["on"] == {"text": "test profile"}
    ]
    return set("".join(rule["do"][0]["text"]).split())


def test_script_can_be_read():
    assert load(PROFILE).rules


def test_documentation_describes_every_text_and_no_other():
    texts = re.findall(r"^\| `test (\w+)` \|", DOCS, re.MULTILINE)
    words = re.findall(r"^\| `(\w+)` \| (?:hears|does not start)", DOCS, re.MULTILINE)
    assert sorted(texts + words) == sorted(known())


def test_scenarios_ask_for_every_text_and_no_other():
    sources = "".join(path.read_text("utf-8") for path in Path(server_cases.__file__).parent.glob("*.py"))
    needed = {
        word
        for words in re.findall(r"server\.needs\(([^)]*)\)", sources)
        for word in re.findall(r'"(\w+)"', words)
    }
    asked = set(re.findall(r'\.(?:ask|begin|ask_json)\("(\w+)"', sources))
    assert asked <= needed
    assert needed == known()


def test_documentation_lists_the_vectors_with_two_right_answers():
    told = set(re.findall(r"`((?:json|malformed|order)\.[a-z-]+)`", DOCS))
    assert {f"client.{name}" for name in told} == set(EITHER)
    assert set(EITHER) <= {vector.id for vector in vectors()}
