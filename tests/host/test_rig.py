"""What a rig makes of the host's events; tests/e2e/test_demo.py runs a whole one."""

import pytest
from vrt_host.config import ServerConfig
from vrt_host.errors import UsageError
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.rig import Rig

SESSION = "0f3c9a7e-1111-2222-3333-444455556666"


@pytest.fixture
def rig():
    return Rig(Recorder(clock=lambda: 100.0), lambda: None, heap="128k")


def test_rig_counts_frames_and_does_not_log_them(rig):
    for name in ("audio.in", "audio.in", "audio.out"):
        rig._observe({"t": 101.0, "event": name, "session": SESSION, "bytes": 165})
    assert rig.frames == {"in": 2, "out": 1}
    assert rig.recorder.events == []


def test_rig_logs_messages_without_what_could_resume_the_session(rig):
    message = {"type": "ready", "sessionId": SESSION, "seq": 0}
    rig._observe({"t": 101.5, "event": "message.out", "session": SESSION, "message": message})
    assert rig.recorder.events == [
        {
            "t": 1.5,
            "source": "host",
            "event": "message.out",
            "session": SESSION[:8],
            "type": "ready",
            "message": {"type": "ready", "sessionId": SESSION[:8] + "…", "seq": 0},
        }
    ]
    assert message["sessionId"] == SESSION  # the host still needs it


def test_rig_logs_frames_that_are_no_messages(rig):
    rig._observe({"t": 100.0, "event": "message.in", "session": None, "text": "garbage"})
    rig._observe({"t": 100.0, "event": "message.in", "session": None, "message": {"sessionId": 7}})
    assert [event.get("type") for event in rig.recorder.events] == [None, None]


async def test_rig_says_why_the_host_does_not_start(rig):
    with pytest.raises(UsageError, match="port 99"):
        async with rig._host(ServerConfig(host="192.0.2.1", port=99, insecure=True)):
            pytest.fail("it started")
