"""Captures: what is written, what never is, when the recording ends, and what is read of it."""

import asyncio
import json
import stat
import sys

import numpy as np
import pytest
from host_client import hosting
from vrt_host.errors import UsageError
from vrt_host.harness import capture as captures
from vrt_host.harness import retold
from vrt_host.harness.capture import Capture, Line, choose, load, redacted

SESSION = "3f0e9c1a-7c7e-4a57-9a52-0b8f5d6c2f11"
READY = {"v": 1, "seq": 0, "type": "ready", "sessionId": SESSION, "input": {"encoding": "pcmu"}, "output": {"encoding": "pcmu"}}  # fmt: skip


@pytest.fixture
def told():
    """Why the recording ended."""
    return []


@pytest.fixture
def record(tmp_path, told):
    """A capture in a file."""
    with Capture(tmp_path / "c.jsonl", by="a test", stopped=told.append) as capture:
        yield capture


def written(path):
    return [json.loads(row) for row in path.read_text("utf-8").split("\n")[:-1]]


def test_frames_are_written_with_time_and_direction_and_read_back(record, tmp_path):
    number = record.connected("192.0.2.7:5000")
    record.text(number, "device", '{"v":1,"seq":0,"type":"ping"}')
    record.text(number, "host", "no JSON \u2028 \x00")
    record.audio(number, "host", b"\x02\0\0\0\7\xff")
    record.end(number, "device", 4000)
    record.end(number, "host", 1006)
    rows = written(tmp_path / "c.jsonl")
    assert rows[0]["capture"] == 1
    assert [row["t"] for row in rows[1:]] == sorted(row["t"] for row in rows[1:])
    assert [{name: row[name] for name in row if name not in {"t", "connection"}} for row in rows[1:]] == [
        {"from": "device", "open": "192.0.2.7:5000"},
        {"from": "device", "text": '{"v":1,"seq":0,"type":"ping"}'},
        {"from": "host", "text": "no JSON \u2028 \x00"},
        {"from": "host", "audio": "AgAAAAf/"},
        {"from": "device", "end": 4000},
    ]
    lines = load(tmp_path / "c.jsonl")
    assert [line.kind for line in lines] == ["open", "text", "text", "audio", "end"]
    assert lines[3].audio == b"\x02\0\0\0\7\xff"
    assert lines[4].code == 4000


@pytest.mark.skipif(sys.platform == "win32", reason="no modes")
def test_file_is_for_its_owner_alone(record, tmp_path):
    assert stat.S_IMODE((tmp_path / "c.jsonl").stat().st_mode) == 0o600


TOKEN = "vrt_" + "s3cret" * 6


@pytest.mark.parametrize(
    "frame",
    [
        json.dumps({"v": 1, "seq": 0, "type": "hello", "auth": {"token": "s3cret"}}),
        '{"type":"hello","\\u0061uth":{"token":"s3cret"}}',
        '{"auth":"s3cret","auth":"s3cret2"}',
        '[{"auth":"s3cret"}]',
        '{"type":"text","deep":[{"auth":{"token":"s3cret"}}]}',
        '{"type":"hello","auth":{"token":"s3cret"',
        f'{{"type":"text","text":"my token is {TOKEN}"}}',
        TOKEN,
    ],
)
def test_credential_is_never_written(frame, record, tmp_path):
    record.text(record.connected(), "device", frame)
    assert "s3cret" not in (tmp_path / "c.jsonl").read_text("utf-8")


def test_session_cannot_be_resumed_with_what_is_written(record, tmp_path):
    record.text(record.connected(), "host", json.dumps(READY))
    assert SESSION not in (tmp_path / "c.jsonl").read_text("utf-8")
    assert choose(load(tmp_path / "c.jsonl"))[0] == SESSION[:8]


def test_other_texts_stay_byte_for_byte():
    for text in ('{"v":1, "seq":3,"type":"text" }', "[]", "nonsense", '{"a":1,"a":2}'):
        assert redacted(text) == text


def test_recording_ends_at_its_greatest_size_with_whole_lines(tmp_path, told):
    path = tmp_path / "c.jsonl"
    with Capture(path, by="a test", stopped=told.append, most=2000) as capture:
        for _ in range(100):
            capture.text(1, "host", "x" * 50)
    assert len(told) == 1
    assert "may have 2,000" in told[0]
    assert 1800 < path.stat().st_size <= 2000
    assert {line.text for line in load(path)} == {"x" * 50}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="has no /dev/full")
def test_full_disk_ends_the_recording_and_nothing_else(tmp_path, told):
    path = tmp_path / "c.jsonl"
    path.symlink_to("/dev/full")
    with Capture(path, by="a test", stopped=told.append) as capture:
        capture.text(1, "host", "x")
        capture.audio(1, "host", b"x")
    assert told == [f"the recording {path} ends here: No space left on device"]


def test_line_that_was_written_in_part_is_taken_back(tmp_path, told):
    path = tmp_path / "c.jsonl"
    with Capture(path, by="a test", stopped=told.append) as capture:
        capture.text(1, "host", "whole")
        capture._file = Short(capture._file)
        capture.text(1, "host", "broken")
        capture.text(1, "host", "never")
    assert path.read_bytes().endswith(b'"whole"}\n')
    assert [line.text for line in load(path)] == ["whole"]
    assert told == [f"the recording {path} ends here: the disk is full"]


class Short:
    """A file that takes half of what it is given."""

    def __init__(self, file):
        self.file = file

    def write(self, data):
        return self.file.write(data[: len(data) // 2])

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_file_that_cannot_be_made_is_refused(tmp_path, told):
    with pytest.raises(UsageError, match=r"cannot record to .*: No such file"):
        Capture(tmp_path / "no" / "c.jsonl", by="a test", stopped=told.append)


HEAD = '{"capture": 1}\n'
LINE = '{"t": 1, "connection": 1, "from": "host", "text": "a"}\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: this is no capture"),
        ("{}\n", "line 1: this is no capture"),
        ('{"capture": 2}\n', "line 1: this is no capture"),
        ("nonsense\n", "line 1: this is no capture"),
        (HEAD + "{}\n", "line 2: this is no line of a capture"),
        (HEAD + LINE + LINE.replace("host", "who") + LINE, "line 3: this is no line"),
        (HEAD + LINE.replace('"text": "a"', '"audio": "?"'), "line 2: this is no line"),
    ],
)
def test_file_that_is_no_capture_is_refused_with_the_line(text, problem, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"^c\.jsonl: {problem}"):
        load(path)


def test_last_line_that_breaks_off_is_left_out(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(HEAD + LINE + LINE[:20])
    assert [line.text for line in load(path)] == ["a"]


def text(t, connection, who, **message):
    return Line(t, connection, who, "text", text=json.dumps({"v": 1, "seq": 0, **message}))


def test_session_is_chosen_by_its_lines_or_its_id():
    lines = [
        text(0, 1, "host", **{**READY, "sessionId": "aaaaaaaa…"}),
        text(0, 2, "host", **{**READY, "sessionId": "bbbbbbbb…"}),
        text(1, 2, "host", type="pong"),
        text(2, 3, "host", type="error", code="NO_SESSION"),
        text(3, 4, "host", **{**READY, "sessionId": "bbbbbbbb…", "resumedFrom": 0}),
    ]
    name, mine = choose(lines)
    assert name == "bbbbbbbb"
    assert [line.connection for line in mine] == [2, 2, 4]
    assert choose(lines, "aaaa")[0] == "aaaaaaaa"
    with pytest.raises(UsageError, match="has no session 'c'; it has aaaaaaaa, bbbbbbbb"):
        choose(lines, "c")
    assert (
        choose(lines, "aaaaaaaa-1111")[0] == "aaaaaaaa"
    )  # the whole id, of which the capture has the beginning
    with pytest.raises(UsageError, match="the capture has no session"):
        choose(lines[3:4])


def test_session_of_a_foreign_capture_is_chosen_by_its_whole_id():
    ids = ("session-1", "session-10", "session-2")
    lines = [text(number, number, "host", **{**READY, "sessionId": one}) for number, one in enumerate(ids)]
    assert [choose([*lines, lines[0]], one)[0] for one in ids] == list(ids)


def test_half_a_surrogate_pair_is_written_as_its_escape():
    frame = '{"sessionId":"0123456789","x":"\\ud800"}'
    assert redacted(frame) == '{"sessionId": "01234567\\u2026", "x": "\\ud800"}'


async def test_servers_links_are_recorded_from_hello_to_the_end(record, tmp_path):
    async with hosting(link=captures.recorded(record)[0]) as host:
        async with host.client() as client:
            await client.hello(auth={"token": "s3cret"})
            await client.send("text", text="hi")
            await client.audio(b"\xff" * 160)
            await client.until("ack")
        await host.event("link.lost")
    lines = load(tmp_path / "c.jsonl")
    kinds = [(line.who, (line.message or {}).get("type", line.kind)) for line in lines]
    for one in [
        ("device", "open"),
        ("device", "hello"),
        ("host", "ready"),
        ("device", "text"),
        ("device", "audio"),
    ]:
        assert one in kinds
    assert (lines[-1].kind, lines[-1].who, lines[-1].code) == ("end", "device", 1000)
    assert "s3cret" not in (tmp_path / "c.jsonl").read_text()


# --- the picture


def frame(t, who, value=0x10):
    return Line(t, 1, who, "audio", audio=bytes([2]) + bytes(4) + bytes([value]) * 800)


TALK = [
    text(0.0, 1, "device", type="hello"),
    text(0.1, 1, "host", **READY),
    text(0.2, 1, "host", seq=1, type="turn.state", turnId="t", epoch=1, state="speaking"),
    text(
        0.2,
        1,
        "host",
        seq=2,
        type="tool.call",
        callId="c",
        name="light",
        arguments={"state": "on"},
        turnId="t",
        epoch=1,
    ),
    text(
        0.3, 1, "device", seq=1, type="tool.result", callId="c", epoch=1, ok=False, code="FAILED", message=""
    ),
    text(0.3, 1, "host", seq=3, type="audio.start", itemId="i", turnId="t", epoch=1),
    frame(0.4, "host"),
    frame(0.4, "host"),
    frame(0.4, "host"),
    text(0.55, 1, "device", seq=2, type="interrupt", epoch=1, reason="user"),
    text(0.56, 1, "host", seq=4, type="interrupted", epoch=1, reason="user"),
    frame(0.6, "host"),
    Line(0.9, 1, "device", "end", code=1006),
    text(1.2, 2, "host", **READY, resumedFrom=3),
    text(1.3, 2, "host", type="turn.state", epoch="broken"),
]


def test_picture_shows_turns_calls_marks_and_the_connection():
    made = retold.picture(TALK, title="a talk")
    assert [(band.kind, round(band.start, 2), round(band.end, 2)) for band in made.turns] == [
        ("speaking", 0.2, 0.55)
    ]
    assert [(call.text, call.outcome) for call in made.calls] == [("light(state=on)", "FAILED")]
    assert [band.kind for band in made.link] == ["up", "down", "up"]
    assert [mark.kind for mark in made.marks] == ["interrupt", "cut", "resume"]


def test_sound_plays_on_until_it_is_interrupted_and_stale_frames_are_not_heard():
    heard = np.flatnonzero(retold.sound(TALK, "host")) / retold.RATE
    assert heard[0] == pytest.approx(0.4, abs=0.01)
    assert heard[-1] == pytest.approx(0.55, abs=0.01)
    assert not retold.sound(TALK, "device").any()


def test_opus_is_not_drawn():
    ready = {**READY, "output": {"encoding": "opus"}}
    assert not retold.sound([text(0, 1, "host", **ready), frame(0.1, "host")], "host").any()


@pytest.mark.parametrize(
    "message",
    [
        {**READY, "output": "pcmu"},
        {**READY, "output": {"encoding": ["pcmu"]}},
        {**READY, "output": {"encoding": "pcmu", "sampleRate": 0}},
        {**READY, "output": {"encoding": "pcm16", "sampleRate": 1}},
        {**READY, "output": {"encoding": "pcm16", "sampleRate": 10**30}},
        {"seq": 9, "type": "turn.state", "turnId": "t", "epoch": 1, "state": ["speaking"]},
        {"seq": 9, "type": "interrupted", "epoch": None, "reason": "user"},
    ],
)
def test_broken_messages_have_no_place_in_a_picture(message):
    made = retold.picture([*TALK, text(1.3, 2, "host", **message), frame(1.4, "host")], title="")
    assert [band.kind for band in made.turns] == ["speaking"]


def test_session_that_is_too_long_is_not_drawn():
    with pytest.raises(UsageError, match="lasts 61 minutes; a picture shows 60 at most"):
        retold.picture([*TALK, text(3660, 2, "host", type="pong")], title="")


@pytest.mark.parametrize(
    "line",
    [
        '{"t": NaN, "connection": 1, "from": "host", "text": ""}',
        '{"t": -1, "connection": 1, "from": "host", "text": ""}',
        '{"t": 1e999, "connection": 1, "from": "host", "text": ""}',
        '{"t": 1, "connection": 1e999, "from": "host", "text": ""}',
        '{"t": 1, "connection": 1, "from": "host", "end": 1e999}',
    ],
)
def test_line_with_an_impossible_number_is_told(tmp_path, line):
    path = tmp_path / "c.jsonl"
    path.write_text('{"capture": 1}\n' + line + "\n")
    with pytest.raises(UsageError, match="line 2: this is no line of a capture"):
        load(path)


@pytest.mark.parametrize(
    "text", ['{"sessionId": "0123456789abcdef",}', '{"session\\u0049d": "0123456789abcdef",}']
)
def test_id_in_a_frame_that_is_no_json_is_not_kept(text):
    assert "0123456789abcdef" not in captures.redacted(text)


def test_times_of_the_picture_begin_with_the_session():
    later = [retold._moved(line, -64.0) for line in TALK]
    assert retold.picture(later, title="").turns[0].start == pytest.approx(0.2)


def test_boards_own_events_are_drawn_instead_of_the_wires():
    told = [{"t": 0.3, "source": "device", "event": "turn", "state": "thinking", "epoch": 9}]
    assert [band.kind for band in retold.picture(TALK, title="", told=told).turns] == ["thinking"]


async def test_taps_number_the_connections_of_several_plays(record, tmp_path):
    loop = asyncio.get_running_loop()
    frame_ = captures.Frame(loop.time(), True, "text", b"{}", {})
    record.taps()(1, frame_)
    record.taps()(1, frame_)
    assert [line.connection for line in load(tmp_path / "c.jsonl")] == [1, 2]
