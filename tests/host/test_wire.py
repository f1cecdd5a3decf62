"""Control messages: every vector of both directions, and what vectors cannot say."""

import json
import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from vrt.protocol import wire as device_wire
from vrt_host.errors import LocalError
from vrt_host.protocol import wire

VECTORS = [
    pytest.param(path.parent.name, case, id=case["id"])
    for path in sorted(wire.schema_folder().glob("examples/*/*.json"))
    if path.parent.name in ("client", "server")
    for case in json.loads(path.read_text("utf-8"))
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
any_text = st.text(st.characters())  # lone surrogates too


def text_of(case):
    return case["text"] if "text" in case else json.dumps(case["json"], ensure_ascii=False)


def classify(frame, sender="client"):
    try:
        wire.decode(frame, sender)
    except wire.WireError as error:
        return error.code
    return "valid"


def nested(levels):
    return '{"v":1,"seq":1,"type":"context","context":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


@pytest.mark.parametrize(("sender", "case"), VECTORS)
def test_decoder_classifies_vector(sender, case):
    text = text_of(case)
    assert classify(text, sender) == case["expect"]
    assert classify(text.encode(), sender) == case["expect"]


@pytest.mark.parametrize("seed", range(4))
def test_host_and_device_classify_damaged_messages_alike(seed):
    rng = random.Random(seed)
    frames = [text_of(param.values[1]) for param in VECTORS if param.values[0] == "server"]
    pieces = [
        *'{}[]",:\\ \n0123456789-+.eEtruefalsn/ü\x01',
        r"\u0041",
        r"\ud800",
        '"v":1',
        '"seq":1',
        "null",
        "1e400",
    ]
    for _ in range(500):
        text = rng.choice(frames)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(text) + 1)
            text = text[:place] + rng.choice(["", rng.choice(pieces)]) + text[place + rng.randint(0, 1) :]
        buffer = bytearray(text.encode())
        try:
            device_wire.decode(buffer, len(buffer))
            device = ("valid", 0)
        except device_wire.WireError as error:
            device = (error.code, error.seq)
        try:
            wire.decode(text, "server")
            host = ("valid", 0)
        except wire.WireError as error:
            host = (error.code, error.seq)
        assert device == host, text


def test_decoder_keeps_unknown_members_at_any_depth():
    hello = {
        "v": 1,
        "seq": 0,
        "type": "hello",
        "auth": {"token": "t", "x": [None]},
        "tools": [{"name": "a", "y": {}}],
    }
    assert wire.decode(json.dumps(hello), "client") == hello


def test_decoder_makes_integers_of_the_members_that_are_some():
    message = wire.decode(
        '{"v":1,"seq":2.0,"type":"interrupt","epoch":3e0,"reason":"user","x":4.0}', "client"
    )
    assert [type(message[member]) for member in ("seq", "epoch", "x")] == [int, int, float]
    assert wire.decode('{"v":1,"seq":0,"type":"hello","resumeFrom":7.0}', "client")["resumeFrom"] == 7
    assert type(wire.decode('{"v":1,"seq":0,"type":"ack","upTo":7.0}', "client")["upTo"]) is int


@pytest.mark.parametrize(
    "frame", [b"\xff", b'{"v":1,"seq":1,"type":"text","text":"\xc3"}', b"\xed\xa0\x80", b"\xef\xbb\xbf{}"]
)
def test_decoder_finds_bytes_that_are_not_utf_8_malformed(frame):
    assert classify(frame) == "MALFORMED"


def test_decoder_takes_32_levels_and_no_more():
    assert classify(nested(wire.MAX_DEPTH)) == "valid"
    assert classify(nested(wire.MAX_DEPTH + 1)) == "MALFORMED"


def test_decoder_counts_no_brackets_in_strings():
    text = "[{" * 100 + '"' + "[" * 100
    frame = json.dumps({"v": 1, "seq": 1, "type": "text", "text": text})
    assert wire.decode(frame, "client")["text"] == text


@pytest.mark.parametrize(
    "frame",
    [
        "[" * 500_000,
        '{"a":' * 200_000,
        '"' + "[" * 200_000,
        "[" * 9 + "]" * 9 + "[]" * 30 + '"' + '\\"' * 100_000,
        "]" * 99,
    ],
)
def test_decoder_survives_deep_text(frame):
    assert classify(frame) == "MALFORMED"


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 309, "1" * 400, "1" * 5000, "-" + "9" * 5000])
def test_decoder_refuses_numbers_beyond_a_double_as_fields(number):
    assert classify(f'{{"v":1,"seq":1,"type":"context","context":[{number}]}}') == "INVALID_FIELD"
    assert classify(f'{{"v":{number},"seq":1,"type":"context","context":1}}') == "UNSUPPORTED_VERSION"
    assert classify(f'{{"v":1,"seq":1,"type":"nothing","x":{number}}}') == "UNKNOWN_TYPE"
    assert classify(f'{{"v":1,"seq":1,"type":"context","context":[{number},NaN]}}') == "MALFORMED"
    assert classify(f'{{"v":1,"seq":1,"type":"context","context":[{number},]}}') == "MALFORMED"


@pytest.mark.parametrize(("member", "item"), [("tools", {"name": "n%d"}), ("capabilities", "c%d")])
def test_decoder_takes_256_tools_and_capabilities_and_no_more(member, item):
    for count, expected in ((wire.MAX_LISTED, "valid"), (wire.MAX_LISTED + 1, "INVALID_FIELD")):
        items = [json.loads(json.dumps(item).replace("%d", str(number))) for number in range(count)]
        assert classify(json.dumps({"v": 1, "seq": 0, "type": "hello", member: items})) == expected


def test_decoder_counts_levels_not_brackets():
    for inner in ("[[]]," * 1000 + "1", '{"a":[]},' * 1000 + "1", '"[[[",' * 100 + "1"):
        assert classify('{"v":1,"seq":1,"type":"context","context":[' + inner + "]}") == "valid"
    assert (
        classify('{"v":1,"seq":1,"type":"context","context":' + '{"a":[' * 16 + "]}" * 16 + "}")
        == "MALFORMED"
    )
    assert (
        classify('{"v":1,"seq":1,"type":"context","context":' + '[{"a":' * 15 + "1" + "}]" * 15 + "}")
        == "valid"
    )


def test_decoder_replaces_lone_surrogates_everywhere():
    frame = r'{"v":1,"seq":1,"type":"context","context":{"\uD800":["\udfff a", "\ud83d\udd12"]}}'
    message = wire.decode(frame, "client")
    assert message["context"] == {"\ufffd": ["\ufffd a", "\U0001f512"]}


@pytest.mark.parametrize(
    ("frame", "seq"),
    [
        ("[", 0),
        ('{"v":2,"seq":5,"type":"text","text":"a"}', 0),
        ('{"v":1,"seq":5,"type":"later"}', 5),
        ('{"v":1,"seq":5.0,"type":7}', 5),
        ('{"v":1,"seq":5,"type":"text"}', 5),
        ('{"v":1,"seq":5,"type":"text","text":"a"}', 5),
        ('{"v":1,"seq":4294967295,"type":"text"}', 4294967295),
        ('{"v":1,"seq":4294967296,"type":"text"}', 0),
        ('{"v":1,"seq":-5,"type":"text"}', 0),
        ('{"v":1,"seq":true,"type":"text"}', 0),
        ('{"v":1,"seq":1.5,"type":"text"}', 0),
        ('{"v":1,"seq":1e400,"type":"text","text":"a"}', 0),
        ('{"v":1,"seq":"5","type":"text"}', 0),
        ('{"v":1,"seq":5,"type":"ping"}', 0),  # no sequenced message, whatever it claims
        ('{"v":1,"seq":0,"type":"ack","upTo":1}', 0),
    ],
)
def test_position_is_the_place_in_the_stream(frame, seq):
    assert wire.position(frame, "client") == seq


def test_error_text_is_bounded():
    frame = json.dumps({"v": 1, "seq": 1, "type": "interrupt", "epoch": 1, "reason": "x" * 5000})
    with pytest.raises(wire.WireError) as caught:
        wire.decode(frame, "client")
    assert str(caught.value).startswith("reason: ")
    assert len(str(caught.value)) <= wire.SHOWN
    with pytest.raises(wire.WireError) as caught:
        wire.decode(json.dumps({"v": 1, "type": "x" * 5000}), "client")
    assert len(str(caught.value)) < 300


@given(any_text)
def test_decoder_raises_nothing_else_on_any_text(text):
    classify(text)
    classify(f'{{"v":1,"seq":1,"type":"text","text":{text}}}')


@given(st.binary())
def test_decoder_raises_nothing_else_on_any_bytes(frame):
    classify(frame)


@given(json_values)
def test_decoder_raises_nothing_else_on_any_json(value):
    assert classify(json.dumps(value)) != "valid"
    for name in ("hello", "tool.result", "ack"):
        classify(
            json.dumps(
                {"v": 1, "seq": 0, "type": name, "tools": value, "auth": value, "limits": value, "ok": value}
            )
        )


@given(json_values)
def test_any_value_survives_encoding_and_decoding(value):
    message = {"v": 1, "seq": 1, "type": "context", "context": value}
    try:
        text = wire.encode(message)
    except wire.TooLargeError:
        return
    assert wire.decode(text, "client") == json.loads(
        wire.well_formed(json.dumps(message, ensure_ascii=False))
    )


def test_encoder_writes_compact_text_with_members_in_order():
    assert (
        wire.encode({"v": 1, "seq": 3, "type": "text", "text": "Tür\n"})
        == '{"v":1,"seq":3,"type":"text","text":"Tür\\n"}'
    )
    assert wire.transient("pong") == '{"v":1,"seq":0,"type":"pong"}'


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, {1: "a"}, {True: 1}, {None: 1}, {"a": {1: 2, "1": 3}}, object(), b"a", {1}]
)
def test_encoder_refuses_what_json_cannot_say(value):
    with pytest.raises(LocalError):
        wire.encode({"v": 1, "context": [value]})


def test_encoder_refuses_what_is_deeper_than_the_peer_reads():
    value = []
    for _ in range(wire.MAX_DEPTH - 2):
        value = [value]
    assert wire.encode({"context": value})
    with pytest.raises(wire.TooLargeError):
        wire.encode({"context": (value,)})


def test_encoder_replaces_lone_surrogates():
    wire.encode({"text": "\ud800", "\udc00": 1}).encode()


@pytest.mark.parametrize(
    "message",
    [
        {"v": 1, "seq": 0, "type": "text", "text": "a"},
        {"v": 1, "seq": 1, "type": "text"},
        {"v": 1, "seq": 1, "type": "hello"},
        {"v": 1, "seq": 1, "type": "interrupted", "epoch": None},
    ],
)
def test_check_refuses_a_message_of_ours(message):
    with pytest.raises(LocalError):
        wire.check(message, "server")


@given(any_text, st.integers(-1, 40))
@example("\ud83d\ude00a", 4)  # the halves of one character, apart
@example("a" * 1023 + "é" * 1100 + "\x01" * 40 + '"\\' * 9, 1023 + 2200 + 240 + 5)
@example("ü" * 1100, 2100)
def test_cut_keeps_the_text_and_the_room(text, room):
    head, rest = wire.cut(text, room)
    assert head + rest == wire.well_formed(text)
    assert wire.size(json.dumps(head, ensure_ascii=False)) - 2 <= max(room, 0)
    if rest:
        assert wire.size(json.dumps(head + rest[0], ensure_ascii=False)) - 2 > room


@given(any_text)
def test_size_is_that_of_utf_8(text):
    assert wire.size(wire.well_formed(text)) == len(wire.well_formed(text).encode())


@given(any_text)
def test_well_formed_changes_only_lone_surrogates(text):
    result = wire.well_formed(text)
    result.encode()
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert result == text


@pytest.mark.parametrize(
    "text",
    ["[1,]", "NaN", "1e400", "01", '{"a" 1}', "", "[" * 99 + "]" * 99, "\ufeff1", "1" * 400, "1" * 5000],
)
def test_loads_refuses_what_is_not_json(text):
    with pytest.raises(ValueError):  # noqa: PT011  (the text differs by fault)
        wire.loads(text)


def test_loads_reads_json():
    assert wire.loads('{"a":[1,2.5,null,"\\ud800"]}') == {"a": [1, 2.5, None, "\ufffd"]}
