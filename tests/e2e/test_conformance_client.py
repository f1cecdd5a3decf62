"""`vrt conformance client` with our own client: real firmware, real MicroPython, real time. A part of each run a user does."""

import json

import pytest
from vrt_host.resources import root

pytestmark = pytest.mark.timeout(300)

TOOLS = str(root() / "boards" / "sim" / "conformance.py")


@pytest.fixture
def conformance(vrt, command, tmp_path):
    """Test a simulated board; returns {check: outcome} and what was said when it failed."""

    def run(*words, board=(), heap="192k"):
        report = tmp_path / "report.json"
        sim = [*command, "sim", "--url", "{url}", "--tools", TOOLS, "--heap", heap, "--json", *board]
        options = ["--ping-interval", "1", "--json", str(report), *words, "--", *sim]
        code, lines, errors = vrt("conformance", "client", *options, timeout=280, VRT_TOKEN="s3cret")
        found = {check["id"]: check for check in json.loads(report.read_text("utf-8"))["checks"]}
        assert code == 0, "\n".join(lines) + errors
        assert "s3cret" not in report.read_text("utf-8") + "\n".join(lines)
        return {name: check["outcome"] for name, check in found.items()}

    return run


def test_board_passes_the_gate_interruptions_audio_and_the_link(conformance):
    chapters = ("gate", "interrupt", "audio", "link", "streams")
    found = conformance(
        *(word for name in chapters for word in ("--only", f"client.{name}")), board=["--set", "ping_ms=1000"]
    )
    untested = {name for name, outcome in found.items() if outcome == "not testable"}
    assert untested == {"client.streams.runs-nothing", "client.streams.phases-survived"}
    assert set(found.values()) == {"passed", "not testable"}
    assert {name.split(".")[1] for name in found} == set(chapters)


def test_board_that_is_silent_pings_and_leaves_a_dead_connection(conformance):
    found = conformance(
        "--only", "client.reliability", board=["--set", "ping_ms=1000", "--set", "listen=button"]
    )
    assert set(found.values()) == {"passed"}


def test_board_takes_every_message_in_the_heap_of_its_budget_and_shows_calls(conformance):
    found = conformance(
        *("--only", "client.errors", "--only", "client.streams"),
        board=["--set", "ping_ms=1000", "--set", "tool_stream=true"],
        heap="128k",
    )
    assert set(found.values()) == {"passed"}
