"""The firmware's WebSocket link against the Autobahn suite; VRT_FULL=1 plays the slow bulk cases as well."""

import importlib.util
import os
import sys

import pytest
from vrt_host.resources import root

spec = importlib.util.spec_from_file_location("autobahn", root() / "tools" / "autobahn.py")
autobahn = importlib.util.module_from_spec(spec)
sys.modules["autobahn"] = autobahn
spec.loader.exec_module(autobahn)

FULL = os.environ.get("VRT_FULL") == "1"


@pytest.mark.timeout(400)
def test_link_conforms_to_the_standard(micropython_binary, tmp_path):
    outcome = autobahn.play(micropython_binary, tmp_path, leave_out=() if FULL else autobahn.BULK)
    assert outcome.failed == {}
    assert outcome.played == len(outcome.passed) + len(outcome.informational)
    families = {case.split(".")[0] for case in outcome.passed}
    assert families == {"1", "2", "3", "4", "5", "6", "7", "9", "10"}


def test_report_with_a_failure_is_read_as_one(tmp_path):
    (tmp_path / "index.json").write_text(
        '{"vrt": {"1.1.1": {"behavior": "OK", "behaviorClose": "OK"},'
        ' "2.1": {"behavior": "NON-STRICT", "behaviorClose": "OK"},'
        ' "3.1": {"behavior": "OK", "behaviorClose": "UNCLEAN"},'
        ' "7.1.6": {"behavior": "INFORMATIONAL", "behaviorClose": "INFORMATIONAL"}}}'
    )
    outcome = autobahn._read(tmp_path, 4)
    assert outcome.passed == {"1.1.1"}
    assert outcome.informational == {"7.1.6"}
    assert outcome.failed == {"2.1": "NON-STRICT / OK", "3.1": "OK / UNCLEAN"}
