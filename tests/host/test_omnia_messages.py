"""agents/omnia_{messages,frames,options,errors,sound,files}.py: what is judged without a connection, by the vectors of schema/peers/omnia."""

import base64
import io
import json
import wave
from pathlib import Path

import numpy as np
import pytest
from peers import vectors
from pydantic import SecretStr
from vrt_host.agents import omnia_errors, omnia_frames, omnia_sound, options
from vrt_host.agents import omnia_messages as messages
from vrt_host.agents.omnia_files import without_files
from vrt_host.agents.omnia_frames import Assembly, Frame, FrameError
from vrt_host.agents.omnia_messages import Failure, MediaChunk, SessionConfig, Unknown
from vrt_host.agents.omnia_options import Options
from vrt_host.agents.omnia_sound import OUTPUT, Microphone, Stream
from vrt_host.agents.provider import PASSING, ProviderError
from vrt_host.errors import UsageError

VECTORS = vectors.load("omnia")
URL = "wss://omnia.example.com"


def cases(which, *, binary):
    """The vectors of a server's frames on the socket."""
    return [
        pytest.param(case, id=case["id"])
        for case in which
        if case["direction"] == "server"
        and case.get("as", "server") in ("server", "frame")
        and ("hex" in case) == binary
        and ("message" in case or "text" in case or "hex" in case)
    ]


UNKNOWN = {"telepathy", "DONE", *VECTORS.schema["$defs"]["client"]["properties"]["type"]["enum"]} - {
    "tool_result"
}
"""Types that no server sends; they are passed over."""


def text(case):
    frame = vectors.frame(case)
    return frame if isinstance(frame, str) else json.dumps(frame)


# --- what comes


@pytest.mark.parametrize("case", cases(VECTORS.valid, binary=False))
def test_message_of_a_facade_is_understood(case):
    assert not isinstance(messages.parse(text(case)), Unknown)


@pytest.mark.parametrize("case", cases(VECTORS.invalid, binary=False))
def test_message_that_is_none_is_refused_in_one_line(case):
    if case.get("receiver") == "accepts" or case["id"] == "server.error.error.code.other":
        assert not isinstance(messages.parse(text(case)), Unknown)  # a code that is unknown is told, too
    elif isinstance(case.get("message"), dict) and case["message"].get("type") in UNKNOWN:
        assert isinstance(messages.parse(text(case)), Unknown)
    else:
        with pytest.raises(ProviderError) as raised:
            messages.parse(text(case))
        assert raised.value.kind in ("malformed", "version")
        assert len(raised.value.line("omnia").splitlines()) == 1


@pytest.mark.parametrize("case", cases(VECTORS.valid, binary=True))
def test_frame_is_taken_apart_as_its_vector_says(case):
    """Header of 32 bytes, numbers big-endian (page, Header layout)."""
    decoded = case["decoded"]
    frame = omnia_frames.decode(vectors.frame(case))
    assert frame.payload.hex() == decoded["payload"]
    assert frame.sequence == decoded["sequence"]
    assert frame.media_id.hex() == decoded["media_id"]
    assert frame.metadata == (decoded["metadata"] or {})
    assert frame.last == ("is_last" in decoded["flags"])


@pytest.mark.parametrize("case", cases(VECTORS.invalid, binary=True))
def test_frame_that_is_none_is_refused_in_words(case):
    def take():
        return Assembly().feed(omnia_frames.decode(vectors.frame(case)))

    if case.get("receiver") == "accepts":
        take()
    else:
        with pytest.raises(FrameError, match=r"^it"):
            take()


def test_transfer_in_chunks_becomes_a_whole():
    """1 MB and a byte come as 17 frames of 64 KB at most (page, Flags)."""
    whole = bytes(range(256)) * 4096 + b"!"
    parts = [whole[at : at + 65_536] for at in range(0, len(whole), 65_536)]
    assert len(parts) == 17
    assembly = Assembly()
    for number, part in enumerate(parts):
        flags = omnia_frames.CHUNKED | (omnia_frames.IS_LAST if number == 16 else 0)
        came = assembly.feed(Frame(part, number, {"total_chunks": 17}, flags=flags))
        assert (came is not None) == (number == 16)
    assert came.payload == whole
    assert came.last
    assert assembly.feed(Frame(b"next", 18)).payload == b"next"


def test_chunk_out_of_order_ends_its_transfer_and_no_other():
    assembly = Assembly()

    def chunk(number, media=b"a" * 12):
        return Frame(b"x", number, {"total_chunks": 3}, media, omnia_frames.CHUNKED)

    assembly.feed(chunk(0))
    assembly.feed(chunk(0, b"b" * 12))
    with pytest.raises(FrameError, match="chunk 2 of 3, and 1 should come"):
        assembly.feed(chunk(2))
    assembly.feed(chunk(1, b"b" * 12))
    assert assembly.feed(chunk(2, b"b" * 12)).payload == b"xxx"
    assembly.feed(chunk(0))
    with pytest.raises(FrameError, match="midst"):
        assembly.feed(Frame(b"x", 5, media_id=b"a" * 12))


def test_transfers_at_once_are_few():
    assembly = Assembly()
    for number in range(5):
        assembly.feed(Frame(b"x", 0, {"total_chunks": 2}, bytes([number]) * 12, omnia_frames.CHUNKED))
    with pytest.raises(FrameError, match="0 should come"):
        assembly.feed(Frame(b"x", 1, {"total_chunks": 2}, bytes(12), omnia_frames.CHUNKED))
    last = Frame(b"y", 1, {"total_chunks": 2}, b"\4" * 12, omnia_frames.CHUNKED)
    assert assembly.feed(last).payload == b"xy"


def test_transfer_has_a_limit(monkeypatch):
    monkeypatch.setattr(omnia_frames, "TRANSFER_BYTES", 10)
    assembly = Assembly()
    assembly.feed(Frame(bytes(6), 0, {"total_chunks": 9}, flags=omnia_frames.CHUNKED))
    with pytest.raises(FrameError, match="more than 10 bytes"):
        assembly.feed(Frame(bytes(6), 1, {"total_chunks": 9}, flags=omnia_frames.CHUNKED))


def test_transfer_of_empty_chunks_costs_nothing():
    assembly = Assembly()
    for number in range(1000):
        assembly.feed(Frame(b"", number, {"total_chunks": 10**9}, flags=omnia_frames.CHUNKED))
    assert assembly._open == {bytes(12): (1000, b"")}


# --- what is sent


@pytest.mark.parametrize(
    "made",
    [
        messages.message(["Hello"], session_id=None, metadata={}),
        messages.message(["Hello"], session_id="s", metadata={"a": "b"}, declare={"sandboxes": {}}),
        messages.message(
            ["a", "b"],
            [
                messages.media_part("image/png", "p.png", 3, storage_ref="omnia://x"),
                messages.media_part("a/b", "f", 1, data="AA=="),
            ],
            session_id=None,
            metadata={},
        ),
        messages.upload_request("photo.jpg", "image/jpeg", 4, session_id="s"),
        messages.ack("c"),
        messages.nack("c", "no"),
        messages.result("c", None),
        messages.result("c", {"a": [1]}),
        messages.failure("c", "it broke"),
        messages.credential_refresh("t"),
        messages.HANGUP,
        messages.DISCLOSURE_ACK,
    ],
    ids=lambda made: made["type"],
)
def test_message_that_is_made_is_valid(made):
    assert vectors.errors("omnia", "client", made) == []


def test_text_alone_is_content_and_more_are_parts():
    assert messages.message(["Hi"], session_id=None, metadata={}) == {"type": "message", "content": "Hi"}
    parts = messages.message(["a", "b"], session_id=None, metadata={})["parts"]
    assert parts == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_frame_that_is_made_is_valid():
    frame = Frame(b"\1\2", 7, {"session_id": "s", "mime_type": "audio/pcm"})
    data = omnia_frames.encode(frame)
    assert vectors.errors("omnia", "client", data) == []
    assert data[:4] == b"OMNI"
    assert len(data) == 32 + len(json.dumps(frame.metadata, separators=(",", ":"))) + 2
    assert omnia_frames.decode(data) == frame


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        ({f"k{number}": "" for number in range(32)}, None),
        ({f"k{number}": "" for number in range(33)}, "33 keys, and 32"),
        ({"k" * 64: "v"}, None),
        ({"k" * 65: "v"}, "1 to 64"),
        ({"": "v"}, "1 to 64"),
        ({"a b": "v"}, "1 to 64"),
        ({"a\n": "v"}, "1 to 64"),
        ({"user_id.x-1": "v" * 8192}, None),
        ({"k": "\ud800"}, None),
        ({"k": "v" * 8193}, "more than 8,192 bytes"),
        ({"k": "ä" * 4097}, "more than 8,192 bytes"),
        ({f"k{number}": "v" * 8190 for number in range(4)}, None),
        ({f"k{number}": "v" * 8191 for number in range(4)} | {"x": ""}, "more than 32,768 bytes"),
    ],
)
def test_limits_of_metadata_are_kept_before_anything_is_sent(metadata, fault):
    """32 keys of 1 to 64 characters, 8 KiB a value, 32 KiB in all (page, Message metadata)."""
    found = messages.metadata_fault(metadata)
    assert found is None if fault is None else fault in found
    if fault is not None:
        with pytest.raises(ValueError, match=fault.split(" ")[0]):
            Options(base_url=URL, metadata=metadata)


# --- errors

CODES = VECTORS.schema["$defs"]["error"]["properties"]["error"]["properties"]["code"]["enum"]
FATAL = {"pack_compile_failed", "SESSION_DECLARATION_REFUSED", "PROVIDER_AUTH_FAILED", "CREDENTIAL_EXPIRED"}
"""What trying again cannot mend: the session ends."""


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_the_table_is_told_with_what_to_do(code):
    failure = messages.parse(
        json.dumps({"type": "error", "error": {"code": code, "message": "what went wrong"}})
    )
    assert isinstance(failure, Failure)
    assert code in omnia_errors.ERRORS
    event = failure.event("omnia", "turn-1", ())
    assert event.code == code.upper()
    assert event.recoverable == (code not in FATAL)
    assert event.message.startswith("omnia: what went wrong")
    assert "; " in event.message
    assert (failure.error.kind in PASSING) == event.recoverable


@pytest.mark.parametrize(("reason", "hope"), [("SandboxUnavailable", True), ("MountNotAuthorized", False)])
def test_refused_declaration_is_told_with_its_reason(reason, hope):
    details = {"type": "sandboxes", "handle": "x/y", "reason": reason, "message": "no such mount"}
    error = omnia_errors.judged("SESSION_DECLARATION_REFUSED", "refused", details)
    assert reason in error.said
    assert "no such mount" in error.said
    assert error.passing == hope


def test_unknown_code_is_told_in_its_own_words():
    error = omnia_errors.judged("TEAPOT", "I am one", {})
    assert error.passing
    assert "I am one (TEAPOT)" in error.line("omnia")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "format"),
        (401, "key"),
        (403, "format"),
        (404, "model"),
        (429, "rate"),
        (503, "rate"),
        (500, "unreachable"),
    ],
)
def test_refused_upgrade_is_of_a_kind(status, kind):
    """400, 401, 403 and 503 are those of the page and of server.go."""
    assert omnia_errors.refused(status, "no", None).kind == kind


@pytest.mark.parametrize(
    ("code", "kind"), [(4401, "expired"), (1009, "malformed"), (1001, "gone"), (1006, "gone")]
)
def test_close_is_of_a_kind(code, kind):
    """4401 "credential expired" is the page's only code."""
    assert omnia_errors.closed(code, "").kind == kind


# --- options


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, f"{URL}/ws?binary=true"),
        ({"base_url": "https://h:1/p/"}, "wss://h:1/p/ws?binary=true"),
        ({"base_url": "ws://127.0.0.1:1/ws"}, "ws://127.0.0.1:1/ws?binary=true"),
        ({"agent": "a b", "namespace": "n", "binary": False}, f"{URL}/ws?agent=a+b&namespace=n"),
        ({"memory_facet": "client:42/x"}, f"{URL}/ws?binary=true&memory_facet=client%3A42%2Fx"),
    ],
)
def test_address_carries_the_parameters_and_no_secret(given, address):
    made = Options(**{"base_url": URL, "api_key": SecretStr("a-secret"), **given})
    assert made.address() == address
    assert "a-secret" not in made.address("sess-1") + repr(made)
    assert "resume=sess-1" in made.address("sess-1")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"base_url": "ws://far.example.com"}, "not encrypted"),
        ({"base_url": "ftp://h"}, "an address"),
        ({"base_url": "wss://h?token=x"}, "key is an option"),
        ({"base_url": "wss://user:word@h"}, "key is an option"),
        ({"declare": {"x": float("nan")}}, "JSON"),
        ({"agent": ""}, "at least 1"),
        ({"memory_facet": ""}, "1 to 128"),
        ({"memory_facet": "-a"}, "1 to 128"),
        ({"memory_facet": "a" * 129}, "1 to 128"),
        ({"memory_facet": "ä"}, "1 to 128"),
        ({"memory_facet": "a\n"}, "1 to 128"),
        ({"declare": {"x": "a" * 16_384}}, "16,384 bytes"),
        ({"api_key": SecretStr("k"), "credential_file": "f"}, "one of them"),
    ],
)
def test_wrong_option_is_refused_before_anything_is_opened(given, fault):
    """`memory_facet` has 1 to 128 characters; `declare` at most 16 KiB (page, URL format; Message)."""
    with pytest.raises(ValueError, match=fault):
        Options(**{"base_url": URL, **given})


def test_facet_of_128_characters_is_taken():
    """1 to 128 (page, URL format)."""
    assert Options(base_url=URL, memory_facet="a" * 128).memory_facet


def test_options_come_from_the_file_and_the_environment(tmp_path):
    path = tmp_path / "agents.toml"
    path.write_text(
        '[omnia]\nbase_url = "wss://h"\nagent = "a"\ncredential_file = "/run/token"\n[omnia.metadata]\nuser_id = "u"\n'
    )
    made = options.load(Options, "omnia", path, environ={"VRT_OMNIA_NAMESPACE": "n"})
    assert (made.agent, made.namespace, str(made.credential_file)) == ("a", "n", "/run/token")
    assert made.metadata == {"user_id": "u"}
    path.write_text('[omnia]\nbase_url = "wss://h"\napi_key = "k"\n')
    with pytest.raises(UsageError, match="OMNIA_API_KEY"):
        options.load(Options, "omnia", path, environ={})


def test_example_of_the_page_is_taken(tmp_path):
    page = (Path(__file__).parents[2] / "docs/agents/omnia.md").read_text("utf-8")
    (tmp_path / "agents.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    (tmp_path / "omnia.key").write_text("k")
    made = options.load(Options, "omnia", tmp_path / "agents.toml", environ={})
    assert (made.agent, made.metadata) == ("my-agent", {"user_id": "kitchen-board"})
    for name in Options.model_fields:
        assert f"`{name}`" in page or f"`{name}_file`" in page, f"{name} is not on the page"


# --- files


def test_files_are_found_in_what_a_device_says():
    photo = base64.b64encode(b"photo").decode()
    value = {
        "camera": [
            f"data:image/svg+xml;base64,{photo}",
            f"data:image/jpeg;name=front%20door.jpg;base64,{photo}",
        ],
        "level": 3,
        "not": ["data:image/jpeg;base64,***", "data:text/plain,hello", f"see data:image/png;base64,{photo}"],
    }
    left, files = without_files(value)
    assert [(file.name, file.mime_type, file.data) for file in files] == [
        ("camera.svg", "image/svg+xml", b"photo"),
        ("front door.jpg", "image/jpeg", b"photo"),
    ]
    assert left["camera"][1] == "the file front door.jpg (image/jpeg, 5 bytes), which follows"
    assert left["level"] == 3
    assert left["not"] == value["not"]


def test_small_file_fits_into_a_message():
    """As base64 below 256 KB (page, ContentPart structure)."""
    _, [file] = without_files(f"data:a/b;base64,{base64.b64encode(bytes(196_605)).decode()}")
    assert len(file.inline()["media"]["data"]) == 262_140
    _, [file] = without_files(f"data:a/b;base64,{base64.b64encode(bytes(196_608)).decode()}")
    assert file.inline() is None


# --- sound

SECOND = np.round(12_000 * np.sin(2 * np.pi * 400 * np.arange(16_000) / 16_000)).astype("<i2").tobytes()


def test_first_frame_of_a_call_says_its_format_and_no_other_does():
    """`codec`, `sample_rate` and `channels` (page, Binary media chunk)."""
    microphone = Microphone()
    assert not microphone.active
    first, second = (microphone.frame(bytes(320), "s") for _ in range(2))
    assert first.metadata == {
        "session_id": "s",
        "mime_type": "audio/pcm",
        "codec": "pcm",
        "sample_rate": 16_000,
        "channels": 1,
    }
    assert second.metadata == {"session_id": "s", "mime_type": "audio/pcm"}
    assert (first.sequence, second.sequence) == (0, 1)
    assert microphone.active
    microphone.begin()
    assert microphone.frame(bytes(2), "s").sequence == 0


@pytest.mark.parametrize(
    ("codec", "rate", "channels", "size"),
    [("pcm", 24_000, 1, 48_000), ("PCM", 16_000, 2, 64_000), ("mulaw", 8_000, 1, 8_000)],
)
def test_audio_has_the_format_that_the_facade_asks_for(codec, rate, channels, size):
    microphone = Microphone()
    assert microphone.configure(SessionConfig(codec, rate, channels))
    made = [microphone.frame(SECOND[at : at + 3200], "s") for at in range(0, len(SECOND), 3200)]
    assert sum(len(frame.payload) for frame in made if frame) == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize("config", [("opus", 48_000, 1), ("pcm", 24_000, 6), ("pcm", 1, 1)])
def test_format_that_cannot_be_had_is_refused(config):
    assert not Microphone().configure(SessionConfig(*config))


@pytest.mark.parametrize("channels", [1, 2])
def test_frame_of_audio_holds_whole_samples(channels):
    microphone = Microphone()
    microphone.configure(SessionConfig("pcm", 16_000, channels))
    sent = [microphone.frame(bytes([number, number, number]), "s").payload for number in range(1, 3)]
    samples = [b"\1\1", b"\1\2\2\2"]
    if channels == 2:
        samples = [b"\1\1\1\1", b"\1\2\1\2\2\2\2\2"]
    assert sent == samples
    assert Microphone().frame(b"\1", "s") is None


def chunk(data, sequence=0, mime_type="audio/pcm", *, last=False, rate=None, channels=1):
    return MediaChunk("m", sequence, last, data, mime_type, rate, channels)


@pytest.mark.parametrize(
    ("mime_type", "rate", "channels", "usual", "seconds"),
    [
        ("audio/pcm", 24_000, 1, 8_000, 1),
        ("audio/pcm;rate=24000", None, 1, 8_000, 1),
        ("audio/pcm; rate=48000", None, 1, 8_000, 0.5),
        ("audio/pcm", None, 1, 24_000, 1),
        ("audio/pcm", None, 2, 24_000, 0.5),
        ("audio/x-mulaw", None, 1, 24_000, 6),
    ],
)
def test_sound_is_played_at_the_rate_that_is_told(mime_type, rate, channels, usual, seconds):
    stream = Stream()
    sound = stream.sound(chunk(bytes(48_000), mime_type=mime_type, rate=rate, channels=channels), usual)
    assert len(sound + stream.end()) == pytest.approx(seconds * OUTPUT.bytes_per_second, rel=0.01)


def test_sample_that_is_cut_in_two_is_put_together():
    stream = Stream()
    assert stream.sound(chunk(b"\1\2\3"), 24_000) == b"\1\2"
    assert stream.sound(chunk(b"\4\5\6"), 24_000) == b"\3\4\5\6"


@pytest.mark.parametrize("mime_type", ["audio/mp3", "video/mp4", "image/png", "nonsense"])
def test_what_cannot_be_played_is_none(mime_type):
    assert Stream().sound(chunk(b"\0\0", mime_type=mime_type), 24_000) is None


def test_file_of_sound_is_played_when_it_is_complete():
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(SECOND)
    data = made.getvalue()
    stream = Stream()
    assert stream.sound(chunk(data[:99], 0, "audio/wav"), 24_000) == b""
    assert stream.sound(chunk(data[99:], 1, "audio/wav", last=True), 24_000) == SECOND
    assert stream.rest() == []
    assert Stream().sound(chunk(b"RIFF", 0, "audio/wav", last=True), 24_000) is None
    unended = Stream()
    assert unended.sound(chunk(data, 0, "audio/wav"), 24_000) == b""
    [end] = unended.rest()
    assert unended.sound(end, 24_000) == SECOND
    endless = Stream()
    parts = [endless.sound(chunk(bytes(1 << 23), number, "audio/wav"), 24_000) for number in range(3)]
    assert parts == [b"", b"", None]


def test_chunks_are_put_in_order_and_none_comes_twice():
    """By `sequence` (page, Media chunk)."""
    stream = Stream()
    given = [part for number in (0, 2, 1, 1, 0, 3) for part in stream.order(chunk(b"", number))]
    assert [part.sequence for part in given] == [0, 1, 2, 3]


def test_chunks_that_come_again_and_again_are_not_played_again():
    stream = Stream()
    given = [
        part.sequence for number in (*range(40), *range(40), 40) for part in stream.order(chunk(b"", number))
    ]
    assert given == list(range(41))


def test_chunk_that_never_comes_is_not_waited_for_for_ever():
    stream = Stream()
    stream.order(chunk(b"", 0))
    given = [part.sequence for number in range(2, 40) for part in stream.order(chunk(b"", number))]
    assert given == list(range(2, 40))
    stream.order(chunk(b"", 42))
    stream.order(chunk(b"", 41))
    assert [part.sequence for part in stream.rest()] == [41, 42]


def test_chunks_that_wait_have_a_limit_in_bytes(monkeypatch):
    monkeypatch.setattr(omnia_sound, "TRANSFER_BYTES", 10)
    stream = Stream()
    stream.order(chunk(b"", 0))
    assert stream.order(chunk(bytes(10), 2)) == []
    assert [part.sequence for part in stream.order(chunk(b"1", 3))] == [2, 3]


@pytest.mark.parametrize("rate", ["9" * 5000, "-1", "0", "", "1e4"])
def test_rate_that_is_none_is_survived(rate):
    Stream().sound(chunk(b"\0\0", mime_type=f"audio/pcm;rate={rate}"), 24_000)


def test_half_a_sample_does_not_outlive_its_format():
    stream = Stream()
    assert stream.sound(chunk(b"\1\2\3"), 24_000) == b"\1\2"
    stream.sound(chunk(b"\1", mime_type="audio/pcmu"), 24_000)
    assert stream.sound(chunk(b"\1\2"), 24_000) == b"\1\2"
