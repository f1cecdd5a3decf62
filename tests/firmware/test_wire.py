import json
import os

from support import SkipTest, raises
from vrt.errors import ProtocolError
from vrt.protocol.tables import SERVER
from vrt.protocol.wire import WireError, decode, encode

_HERE = __file__.rsplit("/", 1)[0] if "/" in __file__ else "."
EXAMPLES = _HERE + "/../../schema/examples/"

VALID = {
    "ack": {"upTo": 3},
    "audio.start": {"itemId": "i", "epoch": 1, "turnId": "t"},
    "error": {"code": "AGENT_ERROR", "recoverable": True},
    "interrupted": {"epoch": 1},
    "pong": {},
    "ready": {
        "sessionId": "s",
        "input": {"encoding": "pcmu"},
        "output": {"encoding": "pcm16", "sampleRate": 24000},
    },
    "text": {"text": ""},
    "tool.call.delta": {"callId": "c", "epoch": 1, "preview": None},
    "tool.call": {"callId": "c", "name": "n", "arguments": None, "turnId": "t", "epoch": 1},
    "tool.stream": {"callId": "c", "name": "n", "turnId": "t", "epoch": 1, "phase": "start"},
    "transcript": {"role": "user", "text": "x", "final": False},
    "turn.state": {"turnId": "t", "epoch": 1, "state": "idle"},
}


ROWS = {}  # type -> its seq class and fields
for line in SERVER.strip().split("\n"):
    words = line.split(" ")
    ROWS[words[0]] = words[1:]


def message(kind, **fields):
    made = dict(VALID[kind])
    made["v"] = 1
    made["seq"] = 0 if ROWS[kind][0] == "0" else 7
    made["type"] = kind
    made.update(fields)
    return made


def parse(value):
    data = (
        value
        if isinstance(value, bytes)
        else (value if isinstance(value, str) else json.dumps(value)).encode()
    )
    buf = bytearray(data + b'}]"1')  # what lies behind the message must not matter
    return decode(buf, len(data))


def fault(value):
    return raises(WireError, parse, value)


def invalid(kind, **fields):
    error = fault(message(kind, **fields))
    assert error.code == "INVALID_FIELD", (kind, fields, error.code)
    return error


def without(kind, name):
    made = message(kind)
    del made[name]
    return made


def test_decode_takes_each_type():
    assert sorted(VALID) == sorted(ROWS)
    for kind, fields in VALID.items():
        got = parse(message(kind))
        assert got["type"] == kind
        for name, value in fields.items():
            assert got[name] == value


def test_decode_ignores_unknown_members_at_any_depth():
    got = parse(message("ready", extra=[1], input={"encoding": "pcmu", "x": {"y": 1}}, toString=1))
    assert got["input"]["encoding"] == "pcmu"


def test_decode_demands_each_required_member():
    for kind, row in ROWS.items():
        for field in row[1:]:
            if field[0] == "/":
                break  # of a phase: see below
            name = field[2:].partition("=")[0]
            made = message(kind)
            made.pop(name, None)
            if field[1] == "+":
                assert fault(made).code == "INVALID_FIELD", (kind, name)
            else:
                parse(made)


def test_decode_classifies_in_the_order_of_the_text():
    assert fault("{").code == "MALFORMED"
    assert fault("[]").code == "MALFORMED"
    assert fault('"x"').code == "MALFORMED"
    assert fault("1").code == "MALFORMED"
    assert fault('{"v":2,"type":"nope","seq":-1,}').code == "MALFORMED"
    assert fault({"v": 2, "type": "nope", "seq": -1}).code == "UNSUPPORTED_VERSION"
    assert fault({"type": "pong", "seq": 0}).code == "UNSUPPORTED_VERSION"
    assert fault({"v": 1, "type": "nope", "seq": -1}).code == "UNKNOWN_TYPE"
    assert fault({"v": 1, "type": "turn.state", "seq": 0}).code == "INVALID_FIELD"


def test_decode_compares_v_as_a_number():
    for v in ("1", "1.0", "1e0"):
        parse('{"v":' + v + ',"seq":0,"type":"pong"}')
    for v in ("true", '"1"', "null", "2", "0", "1.5", "[1]", "{}", "-1", "10000000000000000000000", "1e99"):
        assert fault('{"v":' + v + ',"seq":0,"type":"pong"}').code == "UNSUPPORTED_VERSION", v


def test_decode_knows_server_types_only():
    for kind in (
        "hello",
        "ping",
        "interrupt",
        "toString",
        "__proto__",
        "Pong",
        "pong ",
        "",
        "tool",
        "\n",
        "ack 0",
        "pong 0\nready",
    ):
        assert fault({"v": 1, "seq": 0, "type": kind}).code == "UNKNOWN_TYPE", kind
    for kind in (None, 1, True, [], ["pong"], {}):
        assert fault({"v": 1, "seq": 0, "type": kind}).code == "UNKNOWN_TYPE", kind
    assert fault({"v": 1, "seq": 0}).code == "UNKNOWN_TYPE"


def test_decode_checks_the_seq_of_each_class():
    for kind in VALID:
        invalid(kind, seq=-1)
        invalid(kind, seq=1.5)
        invalid(kind, seq=True)
        invalid(kind, seq="1")
        invalid(kind, seq=None)
        invalid(kind, seq=4294967296)
        assert fault(without(kind, "seq")).code == "INVALID_FIELD"
    invalid("pong", seq=1)
    invalid("turn.state", seq=0)
    assert parse(message("error", seq=0))["seq"] == 0
    assert parse(message("error", seq=5))["seq"] == 5


def test_decode_reads_seq_and_epoch_as_ints_up_to_the_last():
    for value in (1, 0x3FFFFFFF, 0x40000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        got = parse(message("turn.state", seq=value, epoch=value))
        assert (got["seq"], got["epoch"]) == (value, value)
    got = parse('{"v":1,"seq":7.0,"type":"interrupted","epoch":3e1}')
    assert (got["seq"], got["epoch"]) == (7, 30)
    assert isinstance(got["seq"], int)
    assert isinstance(got["epoch"], int)


def test_decode_tells_the_place_in_the_stream_of_an_invalid_message():
    assert invalid("turn.state", epoch=-1, seq=9).seq == 9
    assert fault({"v": 1, "seq": 12, "type": "novel"}).seq == 12
    assert fault({"v": 1, "seq": 12}).seq == 12
    # none: a transient type has no place, an unreadable seq neither, and another version may count differently
    assert invalid("pong", seq=9).seq == 0
    assert invalid("turn.state", seq=-9).seq == 0
    assert fault({"v": 2, "seq": 9, "type": "text"}).seq == 0


def test_decode_checks_ids():
    parse(message("tool.call", callId="x" * 256))
    parse(message("tool.call", callId="\u20ac" * 256))  # characters, not bytes
    for value in ("", "x" * 257, 1, None, True, ["x"]):
        invalid("tool.call", callId=value)
        invalid("audio.start", turnId=value)  # optional, but of its kind when it is there


def test_decode_checks_u32():
    for value in (-1, 4294967296, 1.5, "1", True, None, [], 1e30):
        invalid("interrupted", epoch=value)
        invalid("ack", upTo=value)
        invalid("ready", resumedFrom=value)
    for text in ("1e999", "-1e999"):
        assert fault('{"v":1,"seq":1,"type":"interrupted","epoch":' + text + "}").code == "INVALID_FIELD"


def test_decode_checks_strings_booleans_and_enumerations():
    for value in (1, None, ["x"]):
        invalid("text", text=value)
        invalid("error", message=value)
    for value in (1, 0, "true", None):
        invalid("transcript", final=value)
        invalid("error", recoverable=value)
    for value in ("busy", "Idle", "", None, 0, ["idle"], {}):
        invalid("turn.state", state=value)
    for value in ("agent", "user"):
        parse(message("transcript", role=value))


def test_decode_checks_formats():
    for value in (None, "pcmu", [], {}, {"encoding": "mp3"}, {"encoding": None}, {"sampleRate": 8000}):
        invalid("ready", input=value)
    for rate in (0, -1, 1.5, "8000", True, None):
        invalid("ready", output={"encoding": "pcm16", "sampleRate": rate})
    for rate in ("24000.0", "1e30", "4294967296"):
        parse(
            '{"v":1,"seq":0,"type":"ready","sessionId":"s","input":{"encoding":"opus"},'
            '"output":{"encoding":"pcm16","sampleRate":' + rate + "}}"
        )
    assert (
        fault(
            '{"v":1,"seq":0,"type":"ready","sessionId":"s","input":{"encoding":"opus"},'
            '"output":{"encoding":"pcm16","sampleRate":1e999}}'
        ).code
        == "INVALID_FIELD"
    )


def test_decode_checks_capabilities_and_codes():
    parse(message("ready", capabilities=["tool-stream-v1", "x-a.b", "a" * 64]))
    for value in ("x", None, [1], [""], ["A"], ["a" * 65], ["-a"], ["a-"], ["a..b"], ["a b"], ["a\n"]):
        invalid("ready", capabilities=value)
    parse(message("error", code="A1_B2"))
    for value in ("", "a", "A__B", "_A", "A_", "A B", "A\n", None, 1):
        invalid("error", code=value)


def test_decode_checks_the_phases_of_tool_stream():
    for phase, extra in (
        ("arguments-delta", {"delta": "x"}),
        ("arguments-complete", {"arguments": None}),
        ("progress", {"progress": 1}),
        ("settled", {"ok": True}),
        ("settled", {"ok": False, "code": "FAILED"}),
        ("cancelled", {}),
        ("failed", {"message": "x"}),
    ):
        parse(message("tool.stream", phase=phase, **extra))
        if extra:
            invalid("tool.stream", phase=phase)
    invalid("tool.stream", phase="settled", ok=False)
    invalid("tool.stream", phase="settled", ok=False, code="NO")
    invalid("tool.stream", phase="settled", ok=True, code="NO")
    invalid("tool.stream", phase="done")
    parse(message("tool.stream", phase="start", delta=1))  # not a member of this phase: not looked at


def test_decode_takes_the_last_of_two_members_of_one_name():
    assert parse('{"v":1,"seq":0,"seq":3,"type":"text","text":"a","text":"b"}')["text"] == "b"


def test_decode_gives_whole_characters():
    got = parse(b'{"v":1,"seq":3,"type":"text","text":"\\ud83d\\ude00 \\ud83d \xe2\x82\xac"}')
    assert got["text"] == "\U0001f600 \ufffd \u20ac"
    assert json.loads(encode(got, 200))["text"] == got["text"]  # and what came in can go out again


# --- valid, and too heavy for a small heap


def heavy(count=300):
    return [[] for _ in range(count)]


def test_decode_of_a_heavy_message_leaves_out_what_is_not_known():
    for kind in VALID:
        plain = parse(message(kind))
        for blank in ("", " "):
            known = json.dumps(message(kind)).replace(",", blank + "," + blank)
            known = known.replace(":", blank + ":" + blank)
            wide = json.dumps(heavy())
            for text in (
                blank + '{"x":' + wide + "," + known[1:],
                known[:-1] + ',"x"' + blank + ":" + wide + blank + "}" + blank,
                known[:-1] + "".join([f',"m{i}":"a}}\\"],"' for i in range(100)]) + "}",
            ):
                assert parse(text) == plain, text


def test_decode_of_a_heavy_message_keeps_what_is_known():
    arguments = {"of": list(range(60)), "at": [{"a": "}]"}, True, -1.5e3]}
    got = parse(message("tool.call", arguments=arguments, x=heavy(), preview=heavy()))
    assert got["arguments"] == arguments
    assert "preview" not in got
    limits = {"messageBytes": 4096}
    assert parse(message("ready", limits=limits, x=heavy()))["limits"] == limits
    stream = message("tool.stream", phase="progress", progress={"a": 1}, x=heavy())
    assert parse(stream)["progress"] == {"a": 1}
    assert fault(message("text", text=1, x=heavy(), seq=9)).seq == 9


def test_decode_of_a_heavy_message_leaves_out_what_may_be_absent():
    many = ["x-" + "abcdefghijkl"[i % 12] + str(i) for i in range(100)]
    got = parse(message("ready", capabilities=many, limits={str(i): "" for i in range(100)}, resumedFrom=3))
    assert "capabilities" not in got
    assert "limits" not in got
    assert got["resumedFrom"] == 3
    assert fault(message("ready", resumedFrom=heavy())).code == "INVALID_FIELD"
    assert fault(message("transcript", turnId=heavy(), seq=9)).seq == 9


def test_decode_of_arguments_that_are_too_heavy_says_null():
    for arguments in (heavy(), {"x": heavy(65)}, {str(i): "" for i in range(70)}, list(range(130))):
        got = parse(message("tool.call", arguments=arguments))
        assert got["arguments"] is None
        assert got["callId"] == "c"


def test_decode_of_a_heavy_text_that_is_no_message_is_as_ever():
    assert fault(heavy()).code == "MALFORMED"
    assert fault({"x": heavy()}).code == "UNSUPPORTED_VERSION"
    assert fault({"v": 1, "seq": 4, "type": heavy()}).code == "UNKNOWN_TYPE"
    assert fault({"v": 1, "seq": 4, "type": "nope", "x": heavy()}).seq == 4
    assert fault(message("text", text=heavy())).code == "INVALID_FIELD"
    many = '{"v":1,"seq":1,"type":"text"' + ',"text":[]' * 100 + ',"text":"a"' * 100
    assert fault(many + "}").code == "INVALID_FIELD"
    assert fault(many + ',"x":[}').code == "MALFORMED"


def test_decode_of_a_heavy_message_in_a_large_buffer_is_complete():
    data = json.dumps(message("tool.call", arguments=heavy(100), x=heavy(100))).encode()
    got = decode(bytearray(data + bytes(8000)), len(data))
    assert got["arguments"] == heavy(100) == got["x"]


def test_decode_survives_every_prefix():
    data = json.dumps(message("tool.call", arguments={"a": [1, {"b": "\u20ac"}]})).encode()
    for n in range(len(data)):
        error = raises(WireError, decode, bytearray(data), n)
        assert error.code == "MALFORMED"


def test_encode_writes_json_without_blanks():
    value = {"v": 1, "seq": 4294967295, "type": "text", "text": 'a"\\\n\u20ac\x01'}
    data = encode(value, 100)
    assert isinstance(data, bytes)
    assert b" " not in data
    assert json.loads(data) == value


def test_encode_refuses_what_does_not_fit():
    value = {"text": "x" * 50}
    n = len(encode(value, 100))
    encode(value, n)  # to the last byte
    assert "too large" in str(raises(ProtocolError, encode, value, n - 1))


def test_encode_refuses_what_is_not_json():
    endless = {}
    endless["a"] = endless
    for value in (float("inf"), float("nan"), object(), endless):
        raises(ProtocolError, encode, {"a": value}, 1000)


def cases(path):
    with open(path) as file:
        return json.load(file)


def test_vectors_of_server_messages():
    try:
        names = sorted(os.listdir(EXAMPLES + "server"))
    except OSError:
        raise SkipTest("no file system with schema/examples/server") from None
    count = 0
    for name in names:
        for case in cases(EXAMPLES + "server/" + name):
            text = case["text"] if "text" in case else json.dumps(case["json"])
            data = bytearray(text.encode())
            try:
                decode(data, len(data))
                got = "valid"
            except WireError as error:
                got = error.code
            assert got == case["expect"], (case["id"], got, case["expect"])
            count += 1
    assert count > 100
