"""Messages that no server should send, and errors (vRT §9): the client takes no notice, and goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from vrt_host.conformance.checks import NotTestable, Sheet, Unmet, must, should, shown
from vrt_host.conformance.client_cases.stage import ANSWER_S, NOTHING, Stage, proves
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Message, Session
from vrt_host.protocol import wire

LAST_SEQ = 0xFFFF_FFFF


def largest(hello: Message) -> int | None:
    """Bytes of the largest message that the client announces to take (§11)."""
    limits = hello.get("limits")
    size = limits.get("messageBytes") if isinstance(limits, dict) else None
    return size if isinstance(size, int) else None


def vectors(hello: Message, *, valid: bool) -> Iterator[Message]:
    """The cases of schema/examples/server, but for those that are too large for the client."""
    limit = largest(hello)
    for path in sorted((wire.schema_folder() / "examples" / "server").glob("*.json")):
        for case in json.loads(path.read_text("utf-8")):
            frame = case["text"] if "text" in case else json.dumps(case["json"], ensure_ascii=False)
            size = len(frame.encode())
            if (case["expect"] == "valid") == valid and (limit is None or size <= limit):
                yield case


def say(session: Session, case: Message) -> str:
    """Send a case; a seq that is one becomes the stream's next, lest it pass for a duplicate. Returns the frame."""
    assert session.connection is not None
    frame = case.get("text")
    if frame is None:
        message = case["json"]
        seq = message.get("seq") if isinstance(message, dict) else None
        if seq in (1, LAST_SEQ) and seq is not True:
            # 1.0 stays a number with a fraction
            message = {**message, "seq": type(seq)(session.seq + 1)}
            session.kept.append(message)
        frame = json.dumps(message, ensure_ascii=False)
    session.connection.text(frame)
    return str(frame)


@scenario(
    must("client.errors.invalid-survived", "§9.1", "no invalid message ends the client, or makes it stall"),
    must("client.errors.invalid-not-acted-on", "§9.1", "no invalid message is acted on"),
    must("client.errors.keeps-connection", "§9.1", "the client goes on, on the same connection"),
)  # fmt: skip
async def every_invalid_message_comes(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    await stage.barrier(session)
    connection = session.connection
    assert connection is not None
    said: dict[str, str] = {}
    for count, case in enumerate(vectors(session.hello, valid=False)):
        said[case["id"]] = say(session, case)
        if count % 16 and case["expect"] != "INVALID_FIELD":
            continue
        try:
            await stage.barrier(session)
        except Unmet as unmet:
            after = "; ".join(f"{name} {shown(frame)}" for name, frame in said.items())
            sheet.settle("client.errors.invalid-survived", False, f"after one of: {after}: {unmet}")
            return
        said.clear()
    await stage.barrier(session)
    sheet.settle("client.errors.invalid-survived", True)
    sheet.settle("client.errors.keeps-connection", session.connection is connection and not connection.ended)
    asked = {message["callId"] for message in session.kept if message.get("name") == NOTHING}
    answered = [result for result in session.results() if result.get("callId") not in asked]
    sheet.settle("client.errors.invalid-not-acted-on", not answered, f"it answered {shown(answered)}")


@scenario(
    must(
        "client.errors.unsupported-version",
        "§3.1",
        "a message whose v is not the number 1 is not acted on",
    ),
    must("client.errors.type-of-other-direction", "§2.3", "a type that only clients send is unknown"),
    must(
        "client.errors.inherited-names",
        "§9.1",
        "type is an exact string: no inherited name is a type",
    ),
    must(
        "client.errors.invalid-interrupted",
        "§9.1",
        "an interrupted that is invalid closes nothing",
    ),
)
async def messages_that_look_right(stage: Stage, sheet: Sheet) -> None:
    """Each would be a call, but for one thing."""
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    connection = session.connection
    assert connection is not None
    turn: Message = {"turnId": f"turn-{session.epoch}", "epoch": session.epoch}

    def call(check: str, **change: Any) -> None:
        call_id = f"wrong-{len(wrong)}"
        wrong[call_id] = check
        base = session.number("tool.call", callId=call_id, name="test.slow", arguments={"ms": 0}, **turn)
        message = {name: value for name, value in {**base, **change}.items() if value != "absent"}
        connection.text(json.dumps(message))

    wrong: dict[str, str] = {}
    for version in (2, 0, "1", True, None, 1.5, [1], "absent"):
        call("client.errors.unsupported-version", v=version)
    for type_ in ("toString", "__proto__", "constructor", "tool.call ", "TOOL.CALL", ["tool.call"], None):
        call("client.errors.inherited-names", type=type_)
    for type_ in ("tool.result", "hello", "interrupt", "context", "ping", "playback"):
        call("client.errors.type-of-other-direction", type=type_, ok=True, output=None)
    for epoch in ("absent", "9", -1, 1.5, True, LAST_SEQ + 1):
        base: Message = {"epoch": epoch, "reason": "server"}
        session.say("interrupted", **{name: value for name, value in base.items() if value != "absent"})
    with proves(sheet, "client.errors.invalid-interrupted"):
        started = await stage.slow(session)
    acted = {call_id for call_id in wrong if session.results(call_id)}
    hidden = started - before - 1 - len(acted)
    for call_id, check in wrong.items():
        told = f"{shown(session.results(call_id))}; {hidden} calls started without a result"
        sheet.settle(check, call_id not in acted and hidden <= 0, told)


@scenario(
    must("client.framing.unknown-members-ignored", "§2.2", "members that the client does not know change nothing, at any depth"),
)  # fmt: skip
async def messages_of_a_later_revision(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    extra: Message = {"later": {"a": [None, {"b": 1e3}]}, "toString": 1, "": {}}
    result = await session.result(session.call("test.slow", {"ms": 0}, **extra), stage.s(ANSWER_S))
    sheet.settle("client.framing.unknown-members-ignored", result.get("ok") is True, shown(result))


@scenario(
    must("client.errors.valid-survived", "§2.2", "every valid message is taken"),
    must("client.reliability.last-seq-survived", "§4.1", "a message with the last seq there is does not end the client"),
)  # fmt: skip
async def every_valid_message_comes(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    last = None
    for count, case in enumerate(vectors(session.hello, valid=True)):
        message = case.get("json", {})
        if message.get("type") == "ready":
            continue  # once in a session
        if message.get("seq") == LAST_SEQ:
            last = message
        unique = {"callId": f"{message['callId'][:200]}-{count}"} if "callId" in message else {}
        say(session, {**case, "json": {**message, **unique}})
        if count % 16 == 0:
            await stage.barrier(session)
    if last is None:
        raise NotTestable(
            "the client takes no message that is long enough for these (hello.limits.messageBytes)"
        )
    await stage.barrier(session)
    sheet.settle("client.errors.valid-survived", True)
    connection = session.connection
    assert connection is not None
    session.again(last)  # whatever is numbered after it is a duplicate
    survived = await stage.holds(session, lambda: connection.ended, 0.5)
    sheet.settle(
        "client.reliability.last-seq-survived", survived, f"after {shown(last)}: {connection.told()}"
    )


@scenario(
    must("client.errors.unknown-code-recoverable", "§9.2", "after an unknown error that is recoverable the session goes on"),
    must("client.errors.unknown-code-final", "§9.2", "after an unknown error that is not, the client does not go on as if nothing had been"),
)  # fmt: skip
async def errors_of_a_later_revision(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    connection = session.connection
    assert connection is not None
    for code in ("COFFEE_IS_OUT_2", "E", "AGENT_ERROR"):
        session.say("error", code=code, recoverable=True, message="said by a test")
        await stage.barrier(session)
    kept = session.connection is connection and not connection.ended
    sheet.settle("client.errors.unknown-code-recoverable", kept, "it closed the connection")
    session.say("error", code="COFFEE_IS_OUT_2", recoverable=False, message="said by a test")
    if not await stage.holds(session, lambda: connection.ended, 2):
        sheet.settle("client.errors.unknown-code-final", True)
        return
    session.call(NOTHING, {}, id_="after-the-end")
    ignored = await stage.holds(session, lambda: bool(session.results("after-the-end")), 1)
    sheet.settle("client.errors.unknown-code-final", ignored, "it stays and answers calls")


@scenario(
    should("client.errors.too-large-survived", "§11", "a message above the announced limit does not end the client"),
)  # fmt: skip
async def a_message_is_too_large(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    size = largest(session.hello)
    if size is None:
        sheet.not_testable(
            "client.errors.too-large-survived", "hello.limits.messageBytes does not say how large one may be"
        )
        return
    session.say("text", text="x" * (size + 1000), final=True, turnId="turn-1", epoch=session.epoch)
    assert session.connection is not None
    try:
        await stage.barrier(session)
    except Unmet:
        connection, hello = await stage.back(session)  # closing with 1009 is an answer too
        session.kept.pop(-2)
        session.resume(connection, hello)
        await stage.barrier(session)
    sheet.settle("client.errors.too-large-survived", True)


SCENARIOS = (
    every_invalid_message_comes,
    messages_that_look_right,
    messages_of_a_later_revision,
    every_valid_message_comes,
    errors_of_a_later_revision,
    a_message_is_too_large,
)
