"""agents/chat_model.py, chat_text.py, chat_history.py: what a chat server sends, says and is told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vrt_host.agents import chat_model
from vrt_host.agents.base import Tool, ToolResult
from vrt_host.agents.chat_history import LABEL, CallMade, History, output
from vrt_host.agents.chat_model import Done, Reader, Said, Writes, declarations
from vrt_host.agents.chat_text import Clauses, Thinking, heard, spoken
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.provider import ProviderError

NAMES = ToolNames([Tool("lock"), Tool("turn on/off")])


def chunk(delta, finish=None):
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def call(index=None, id_=None, name=None, arguments=None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    made = {"index": index, "id": id_, "function": function}
    return {"tool_calls": [{key: value for key, value in made.items() if value is not None}]}


def read(*lines, finish="stop"):
    reader = Reader(NAMES)
    parts = [part for line in lines for part in reader.line(line)]
    if finish:
        reader.line(chunk({}, finish))
    return parts + reader.end()


def calls(*lines, **options):
    return [(one.name, one.arguments) for one in read(*lines, **options)[-1].calls]


def said(*lines, **options):
    return "".join(part.text for part in read(*lines, **options) if isinstance(part, Said))


# --- calls, as servers write them


def test_call_in_fragments():
    lines = [call(0, "a", "lock", ""), call(0, arguments='{"door"'), call(0, arguments=': "front"}')]
    parts = read(*map(chunk, lines))
    assert [part.delta for part in parts if isinstance(part, Writes)] == ["", '{"door"', ': "front"}']
    (one,) = parts[-1].calls
    assert (one.id, one.name, one.arguments) == ("a", "lock", '{"door": "front"}')


@pytest.mark.parametrize(
    "lines",
    [
        [call(0, "a", "lock", '{"n": 1}'), call(1, "b", "lock", '{"n": 2}')],
        [call(0, "a", "lock", '{"n": 1}'), call(0, "b", "lock", '{"n": 2}')],
        [call(0, None, "lock", '{"n": 1}'), call(0, None, "lock", '{"n": 2}')],
        [call(None, None, "lock", {"n": 1}), call(None, None, "lock", {"n": 2})],
        [call(0, "a", "lock", '{"n"'), call(0, "a", "lock", ": 1}"), call(1, "b", "lock", '{"n": 2}')],
        [call("0", "a", "lock", '{"n"'), call("0", "a", "lock", ": 1}"), call("1", "b", "lock", '{"n": 2}')],
        [
            call(None, "a", "lock", '{"n": 1'),
            call(None, None, None, "}"),
            call(None, "b", "lock", '{"n": 2}'),
        ],
        [
            call(0, "a", "lock", '{"n": 1}'),
            call(0, "a", "lock", '{"n": 1}'),
            call(0, "a", "lock", '{"n": 2}'),
        ],
        [call(0, "a", "lock", '{"n": 1}'), call(0, "a", "lock", ""), call(1, "a", "lock", '{"n": 2}')],
    ],
    ids=[
        "indices",
        "one index",
        "no ids",
        "no index, objects",
        "name in each fragment",
        "name and id in each, no index",
        "no index",
        "sent twice, and one id for two",
        "one id",
    ],
)
def test_two_calls_however_they_are_told_apart(lines):
    assert calls(*map(chunk, lines)) == [("lock", '{"n": 1}'), ("lock", '{"n": 2}')]


@pytest.mark.parametrize("arguments", ['{"door": "fr', "{'door': 1}", "[1]", '{"n": 1}}'])
def test_arguments_are_handed_on_as_they_were_written(arguments):
    assert calls(chunk(call(0, "a", "lock", arguments))) == [("lock", arguments)]


def test_call_without_arguments_has_none():
    assert calls(chunk(call(0, "a", "lock"))) == [("lock", "{}")]


@pytest.mark.parametrize("text", ["%s", "```json\n%s\n```", "<tool_call>\n%s\n</tool_call>"])
def test_text_that_is_nothing_but_a_call_is_one_and_is_not_said(text):
    text %= '{"name": "lock", "arguments": {"door": "front"}}'
    lines = [chunk({"content": letter}) for letter in text]
    assert calls(*lines) == [("lock", '{"door": "front"}')]
    assert said(*lines) == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "fly", "arguments": {}}',
        'Here: {"name": "lock", "arguments": {}}',
        '{"name": "lock", "arguments": "front"}',
        '{"name": "lock", "arguments": {}, "sure": false}',
        "<b>bold</b>",
    ],
)
def test_text_that_is_more_or_less_than_a_call_is_text(text):
    assert calls(chunk({"content": text})) == []
    assert said(chunk({"content": text})) == text


def test_call_that_may_have_lost_something_is_not_run():
    with pytest.raises(ProviderError) as caught:
        read(
            chunk(call(0, "a", "lock", '{"percent": 1')),
            'data: {"choices": [{',
            chunk(call(0, None, None, "}")),
        )
    assert caught.value.kind == "malformed"
    with pytest.raises(ProviderError) as caught:
        read(chunk(call(0, "a", "lock", '{"percent": 10}')), finish=None)
    assert caught.value.kind == "gone"


def test_text_survives_a_chunk_that_cannot_be_read_and_what_is_not_known():
    lines = [
        chunk({"content": "One "}),
        "data: {",
        ": alive",
        "event: x",
        "data: []",
        'data: {"kind": 1}',
        "data: [DONE]",
    ]
    assert said(*lines, chunk({"content": "two."})) == "One two."


def test_error_in_the_stream_is_the_servers_word():
    with pytest.raises(ProviderError) as caught:
        read('data: {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}')
    assert (caught.value.kind, caught.value.said) == ("rate", "Rate limit reached")


def test_line_without_an_end_is_left_out():
    reader = Reader(NAMES)
    parts = reader.feed(b"data: {")
    for _ in range(40):
        parts += reader.feed(b"x" * (chat_model._LINE_BYTES // 16))
        assert len(reader._rest) <= chat_model._LINE_BYTES + 7
    parts += reader.feed(b"\n" + chunk({"content": "Hello."}, "stop").encode() + b"\n")
    assert "".join(part.text for part in [*parts, *reader.end()] if isinstance(part, Said)) == "Hello."
    assert reader.broken
    reader.feed(chunk(call(0, "a", "lock", "{}")).encode() + b"\n")
    with pytest.raises(ProviderError):
        reader.end()


def test_too_many_calls_are_refused():
    with pytest.raises(ProviderError, match="more than 32"):
        read(*(chunk(call(n, str(n), "lock", "{}")) for n in range(40)))


def test_names_are_mapped_both_ways():
    names = ToolNames([Tool("turn on/off"), Tool("turn on_off"), Tool("x" * 80), Tool("x" * 81)])
    declared = [one["function"]["name"] for one in declarations(names)]
    assert declared[:2] == ["turn_on_off", "turn_on_off_2"]
    assert all(len(name) <= 64 for name in declared)
    assert len(set(declared)) == 4
    assert [names.own(name) for name in declared] == ["turn on/off", "turn on_off", "x" * 80, "x" * 81]
    assert names.own("fly") == "fly"


# --- text on its way to the voice


@pytest.mark.parametrize("text", ["<think>Lock it?</think>\n\nHello.", "Hello.", "<think>a<b</think>Hello."])
def test_thoughts_are_not_said(text):
    for size in (1, 3, 100):
        thinking = Thinking()
        parts = [thinking.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join([*parts, thinking.end()]) == "Hello."


def test_thought_without_an_end_is_not_said():
    thinking = Thinking()
    assert thinking.feed("<think>" + "on and on " * 1000) == ""
    assert thinking.end() == ""


def clauses(text, size=3):
    made = Clauses()
    return [one for at in range(0, len(text), size) for one in made.feed(text[at : at + size])] + made.end()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes. The door is locked.", ["Yes. ", "The door is locked."]),
        ("It is 21.5 degrees, Dr. Who. Fine.", ["It is 21.5 degrees, ", "Dr. Who. ", "Fine."]),
        ("Well, then.", ["Well, then."]),
        ("One\n\nTwo", ["One\n\n", "Two"]),
        ("", []),
    ],
)
def test_clauses(text, expected):
    assert clauses(text) == expected


@given(st.text(alphabet="ab .,!?\n", max_size=400), st.integers(1, 50))
def test_clauses_joined_are_the_text(text, size):
    assert "".join(clauses(text, size)) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[BLANK_AUDIO]", ""),
        (" (wind blowing) [MUSIC] ", ""),
        ("...", ""),
        ("", ""),
        (" Lock it. ", "Lock it."),
        ("(laughs) Lock it.", "(laughs) Lock it."),
    ],
)
def test_sound_without_words_was_nothing(text, words):
    assert heard(text) == words


def test_clause_never_grows_without_end():
    assert max(map(len, clauses("word " * 200))) <= 240
    assert max(map(len, clauses("x" * 1000))) <= 240


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("**Done!** \N{PARTY POPPER}", "Done!"),
        ("- `lamp` is on", "lamp is on"),
        ("# Doors\n", "Doors"),
        ("See [the page](https://x.y/z).", "See the page."),
        ("set_fan to 3 * 4", "set_fan to 3 4"),
        ("---\n", ""),
        ("\N{PARTY POPPER}", ""),
    ],
)
def test_marks_are_not_said(clause, expected):
    assert spoken(clause) == expected


# --- what the model is told


def history(context=None, limit=20):
    return History("Be brief.", context, limit)


def spoke(history, turn, *pieces):
    answer = history.answer(turn, f"item-{turn}", shown=False)
    for text, ms in pieces:
        answer.say(text)
        answer.sound(ms)
    return answer


def test_only_what_was_heard_of_an_answer_is_kept():
    told = history()
    told.ask("How are you?")
    spoke(told, "t", ("I am fine. ", 1000), ("How are you today then?", 1000), ("Bye.", 500))
    told.interrupted("t", {"item-t": 1500})
    assert told.messages()[-1] == {"role": "assistant", "content": "I am fine. How are"}


@pytest.mark.parametrize(("ms", "content"), [(0, None), (2000, "One. Two."), (5000, "One. Two.")])
def test_answer_heard_not_at_all_or_to_its_end(ms, content):
    told = history()
    told.ask("Count.")
    spoke(told, "t", ("One. ", 1000), ("Two.", 1000))
    told.interrupted("t", {"item-t": ms} if ms else {})
    assert [one["content"] for one in told.messages()[2:]] == ([content] if content else [])


def test_two_questions_without_an_answer_are_one_message():
    told = history()
    told.ask("Turn on")
    told.ask("the light.")
    assert told.messages()[1:] == [{"role": "user", "content": "Turn on\nthe light."}]


def test_every_call_has_a_result_whatever_became_of_it():
    told = history()
    told.ask("Lock it.")
    answer = told.answer("t", "i", shown=True)
    answer.calls = [CallMade("a", "lock", '{"door": 1}', "done"), CallMade("b", "lock", "[cut", None)]
    _, _, said, first, second = told.messages()
    assert [one["function"]["arguments"] for one in said["tool_calls"]] == ['{"door": 1}', "{}"]
    assert (first["tool_call_id"], first["content"]) == ("a", "done")
    assert json.loads(second["content"])["code"] == "INTERRUPTED"


def test_outcome_says_what_was_wrong():
    assert json.loads(output(ToolResult("c", True, {"n": 1}), "{}")) == {"ok": True, "output": {"n": 1}}
    refused = ToolResult("c", False, code="INVALID", message="no JSON")
    assert json.loads(output(refused, "[cut")) == {
        "ok": False,
        "code": "INVALID",
        "message": "no JSON",
        "arguments": "[cut",
    }


def test_context_is_data_before_the_users_words_once():
    told = history({"door": "open"})
    told.context({"door": "ajar"})
    told.context({"door": "shut"})
    told.ask("Hello.")
    told.answer("t", "i", shown=True).text = "Hello."
    told.ask("Bye.")
    system, first, _, second = told.messages()
    assert first["content"] == f'{LABEL}\n{{"door": "open"}}\n{{"door": "shut"}}\n\nHello.'
    assert second["content"] == "Bye."
    assert "door" not in system["content"]
    assert LABEL in system["content"]


def test_old_exchanges_are_forgotten_and_the_context_is_not():
    told = history({"door": "open"}, limit=2)
    for number in range(5):
        told.ask(f"Number {number}.")
    content = told.messages()[1]["content"]
    assert '{"door": "open"}' in content
    assert "Number 2." not in content
    assert told.shorten()
    assert "Number 3." not in told.messages()[1]["content"]
    assert not told.shorten()


def test_done_is_last():
    assert isinstance(read(chunk({"content": "x"}))[-1], Done)
