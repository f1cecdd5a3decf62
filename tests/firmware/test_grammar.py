import json
import sys

from vrt.protocol.grammar import weigh
from vrt.protocol.surrogates import join


def good(text):
    data = text if isinstance(text, bytes) else text.encode()
    assert weigh(data, len(data)), text
    # behind a longer buffer, and with every byte after the text changed
    padded = bytearray(data + b'"}]0x')
    assert weigh(padded, len(data)), text


def bad(text):
    data = text if isinstance(text, bytes) else text.encode()
    assert not weigh(data, len(data)), text
    padded = bytearray(data + b'"}]000')  # what lies behind the end does not complete it
    assert not weigh(padded, len(data)), text


def test_values():
    for text in (
        "{}",
        "[]",
        "0",
        "-0",
        "10",
        "-1.5",
        "0.5e10",
        "1E-2",
        "1e+2",
        "true",
        "false",
        "null",
        '""',
        '"a"',
    ):
        good(text)
        good(" \n\r\t" + text + " \n")
        good("[" + text + "," + text + "]")
        good('{"a":' + text + ',"b" : ' + text + " }")


def test_structures():
    for text in ("[[]]", '{"a":{}}', '[{"a":[1,{"b":null}]},[]]', "[[],[],{}]", '{"a":[],"a":{}}', '{"":0}'):
        good(text)


def test_what_micropython_would_take_is_refused():
    for text in (
        "[1,]",
        '{"a" 1}',
        "[1 2]",
        '{"a":1,}',
        "01",
        "-01",
        "[,]",
        "{,}",
        '{"a",1}',
        "[1:2]",
        "{1:2}",
        "'a'",
    ):
        bad(text)


def test_broken_structures():
    for text in (
        "",
        " ",
        "[",
        "]",
        "{",
        "}",
        "[}",
        "{]",
        "[1}",
        '{"a":1]',
        "[[]",
        "[]]",
        "{}{}",
        "[] []",
        "1 2",
        ",",
        ":",
    ):
        bad(text)
    for text in (
        '{"a"}',
        '{"a":}',
        "{a:1}",
        '{"a":1 "b":2}',
        '{"a"::1}',
        "{:1}",
        "[1,,2]",
        '{"a":1,,"b":2}',
        '["a":1]',
    ):
        bad(text)
    for text in ("[1]x", "{}\0", "\0{}", "\ufeff{}", "{}//", "/**/{}", "{}\x0b", "\x0c[]", "\u00a0[]"):
        bad(text)


def test_broken_numbers():
    for text in (
        "+1",
        ".5",
        "5.",
        "-",
        "--1",
        "1e",
        "1e+",
        "1.e5",
        "0x10",
        "1_000",
        "NaN",
        "Infinity",
        "-Infinity",
        "1.2.3",
        "00",
    ):
        bad(text)
        bad("[" + text + "]")


def test_broken_words():
    for text in ("tru", "True", "truE", "nul", "none", "falsee", "truefalse", "t", "n"):
        bad(text)


def test_strings():
    for text in (
        '"\\u00e9\\uD83D\\n\\"\\\\\\/\\b\\f\\r\\t"',
        '"\x7f"',
        '"\u00e9\u20ac\U0001f600"',
        '"\u0800\ud7ff\ue000\uffff\U0010ffff"',
    ):
        good(text)
    for text in (
        '"',
        '"a',
        '"\\',
        '"\\"',
        '"\\x"',
        '"\\u12"',
        '"\\u12g4"',
        '"\\u"',
        '"\n"',
        '"\x00"',
        '"\x1f"',
        '"\t"',
        '"\\u123',
    ):
        bad(text)
        bad('{"a":' + text + "}")
        bad("{" + text + ":1}")


def test_strings_in_broken_utf8():
    for tail in (
        b"\x80",
        b"\xbf",
        b"\xc0\xaf",  # overlong
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xed\xa0\x80",  # a surrogate
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",  # above 10FFFF
        b"\xf5\x80\x80\x80",
        b"\xff",
        b"\xc3",  # cut
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xc3(",
        b"\xe2\x82(",
        b"\xf0\x9f\x98(",
    ):
        bad(b'"' + tail + b'"')
        bad(b'"' + tail)
    bad(b"\xc3\xa9")  # letters stand in strings only
    bad(b"[\xe2\x82\xac]")


def test_depth():
    good("[" * 32 + "]" * 32)
    bad("[" * 33 + "]" * 33)
    good('{"a":' * 31 + "[]" + "}" * 31)
    bad('{"a":' * 32 + "[]" + "}" * 32)
    good("[" + "[]," * 100 + "[]]")
    bad("[" * 10000)
    # objects and arrays mixed close in the right order at every depth
    good('[{"a":' * 16 + "1" + "}]" * 16)
    bad('[{"a":' * 16 + "1" + "]}" * 16)


def test_every_prefix_of_a_text_is_refused():
    text = '{"v":1,"a":[-1.5e3,true,null,{"b":"\\u00e9\u20ac\\\\"}],"c":""}'.encode()
    good(text)
    for n in range(len(text)):
        assert not weigh(text, n), n
        assert not weigh(text[:n], n), n


def test_agrees_with_a_strict_parser_on_mutations():
    if sys.implementation.name == "micropython":
        return  # its own parser is the lax one; the same mutations ran on CPython

    def strict(data):
        def refuse(word):
            raise ValueError(word)

        try:
            json.loads(data.decode(), parse_constant=refuse)
        except ValueError:
            return False
        return True

    seeds = (
        b'{"a":[1,-2.5e+3,{"b":null}],"c":"x\\u00e9\\n\xc3\xa9"}',
        b"[[true,false],[],{}]",
        b'{"k":{"l":""}}',
    )
    alphabet = b'{}[]:,"\\ 0123456789-+.eEtrufalsn\xc3\xa9\xed\xa0\x00\x1f/'
    count = [0, 0]
    state = 12345
    for round_ in range(60000):
        data = bytearray(seeds[round_ % 3])
        for _ in range(1 + round_ % 3):
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
            at = (state >> 8) % len(data)
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
            if state & 0x10000:
                data[at] = alphabet[(state >> 8) % len(alphabet)]
            elif state & 0x20000:
                del data[at]
            else:
                data.insert(at, alphabet[(state >> 8) % len(alphabet)])
        data = bytes(data)
        assert (weigh(data, len(data)) > 0) == strict(data), data
        count[strict(data)] += 1
    assert min(count) > 1000


def joined(text):
    buf = bytearray(text)
    size = len(buf)
    n = join(buf, size)
    assert len(buf) == size
    return bytes(buf[:n])


def test_join_surrogates_writes_the_character_they_mean():
    assert joined(b'{"a":"x\\ud83d\\ude00y"}') == '{"a":"x\U0001f600y"}'.encode()
    assert joined(b'"\\uD83D\\uDE00\\uDBFF\\uDFFF"') == '"\U0001f600\U0010ffff"'.encode()


def test_join_surrogates_replaces_lone_ones():
    for text in (b"\\ud83d", b"\\ude00", b"\\ud83dx", b"\\ud83d\\n"):
        out = joined(b'"' + text + b'"').decode()
        assert out.startswith('"\ufffd'), text
        assert weigh(out.encode(), len(out.encode()))
    assert joined(b'"\\ud83d\\ud83d\\ude00"') == '"\ufffd\U0001f600"'.encode()
    assert joined(b'"\\ude00\\ud83d"') == '"\ufffd\ufffd"'.encode()
    assert joined(b'"\\ud83d\\u0041"') == '"\ufffd\\u0041"'.encode()


def test_join_surrogates_leaves_the_rest_alone():
    for text in (b"{}", b'"\\\\ud83d"', b'"\\u00e9\\\\\\u20ac"', b'"\\n\\""', b'"\\\\"', b'"\\uD7FF\\uE000"'):
        assert joined(text) == text
