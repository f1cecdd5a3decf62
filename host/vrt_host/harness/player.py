"""Plays a scenario: says its lines to the device, breaks the wire, and looks at what comes (docs/harness.md).

    findings = await play(scenario, device, recorder=..., view=..., pace=..., taps=(capture.taps(),))

The server is `conformance.server`'s, the connection goes through `harness.proxy`, and everything that happens is an event of
the recorder: of source `wire` the device's frames (`in`: kind, message) and ours (`out`), `come` and `end` (code) of
connections; of `proxy`, `device` and `hardware` what these tell. An expectation is a question to that log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from vrt_host.conformance.checks import (
    Check,
    Finding,
    Ledger,
    NotTestable,
    Outcome,
    Sheet,
    Unmet,
    must,
    shown,
)
from vrt_host.conformance.client_cases.stage import Stage
from vrt_host.conformance.run import Pace
from vrt_host.conformance.serial import SerialListener, SerialWire
from vrt_host.conformance.server import Connection, Frame, Message, Session, resume_from
from vrt_host.conformance.watch_client import ALWAYS, ClientWatch
from vrt_host.conformance.websocket import WebSocketListener
from vrt_host.errors import UsageError, VrtError
from vrt_host.harness import look
from vrt_host.harness.desk import Device, Wire
from vrt_host.harness.live import View
from vrt_host.harness.proxy import Direction
from vrt_host.harness.recorder import Event, NotSeen, Recorder
from vrt_host.harness.scenario import Scenario, Step
from vrt_host.runner import without_tokens

WITHIN_S: Final = 5.0
"""For what must come, when the scenario does not say."""
COME_S: Final = 15.0
"""For a device that has to come back."""
FOR_S: Final = 0.5
"""How long something must not come."""
DEADLINE_S: Final = 300.0
_LANES: Final[Mapping[str, tuple[Direction, ...]]] = {
    "up": ("up",),
    "down": ("down",),
    "both": ("up", "down"),
}

Tap = Callable[[int, Frame], None]
"""Hears every frame of every connection, which are numbered from 1."""


class Ears(ClientWatch):
    """The rules that always hold, and the recorder, at each connection from its first frame on."""

    def __init__(self, ledger: Ledger, recorder: Recorder, taps: tuple[Tap, ...] = ()) -> None:
        super().__init__(ledger)
        self._recorder = recorder
        self._taps = taps
        self._connections = 0

    def look(self, connection: Connection) -> None:
        """Look at a connection, also at what it has said by now."""
        self._connections += 1
        number = self._connections
        self._recorder.add("wire", "come", number=number)
        super().look(connection)
        connection.observers.append(lambda frame: self._hear(number, frame))
        for frame in list(connection.frames):
            for observer in connection.observers:
                observer(frame)

    def _hear(self, number: int, frame: Frame) -> None:
        for tap in self._taps:
            tap(number, frame)
        at = frame.t  # the event loop's clock is time.monotonic
        if frame.kind == "end":
            code = int.from_bytes(frame.data[:2], "big")
            self._recorder.add("wire", "end", at=at, number=number, code=code)
        elif frame.kind in {"text", "binary"}:
            name = "out" if frame.sent else "in"
            what: Event = (
                {"message": frame.message} if frame.message else {"text": without_tokens(str(frame))}
            )
            if frame.kind == "binary":
                what = {"bytes": len(frame.data)}
            self._recorder.add("wire", name, at=at, number=number, kind=frame.kind, **what)


async def play(
    scenario: Scenario,
    device: Device,
    *,
    at: tuple[str, int] | str = ("127.0.0.1", 0),
    recorder: Recorder,
    view: View,
    pace: Pace | None = None,
    taps: tuple[Tap, ...] = (),
) -> list[Finding]:
    """Play it with a device that connects to `at`, or is at this serial port; returns what came of its checks, and of the rules that were broken."""
    alive = runs_on(scenario.name, scenario.section)
    ledger = Ledger((*scenario.checks, alive, *ALWAYS))
    sheet = Sheet(ledger, scenario.checks)
    ears = Ears(ledger, recorder, taps)
    async with stage_for(device, ears, recorder, alive, at=at, pace=pace or Pace()) as (stage, wire):
        await Player(scenario, device, stage, wire, recorder, view).run(sheet)
    sheet.close()
    return found(ledger, (*scenario.checks, alive) if device.tells else scenario.checks)


def runs_on(name: str, section: str) -> Check:
    """That the firmware of a simulated board does not fail meanwhile, or when it is switched off."""
    return must(f"harness.{name}.the-board-runs-on", section, "the board's firmware runs on without a fault")


def found(ledger: Ledger, checks: Iterable[Check]) -> list[Finding]:
    """What came of these checks, and of the rules that always hold those that were broken."""
    mine = {check.id for check in checks}
    broken = {Outcome.FAILED, Outcome.WARNED}
    return [one for one in ledger.findings() if one.check.id in mine or one.outcome in broken]


@contextlib.asynccontextmanager
async def stage_for(
    device: Device, ears: Ears, recorder: Recorder, alive: Check, *, at: tuple[str, int] | str, pace: Pace
) -> AsyncIterator[tuple[Stage, Wire | SerialWire]]:
    """A server that listens, the wire before it at `at` (an address or a serial port), and the device, which is stopped at the end.

    `alive` is settled: a board that fails ends what is inside, and that is all.
    """
    try:
        async with contextlib.AsyncExitStack() as stack:
            listener: WebSocketListener | SerialListener
            wire: Wire | SerialWire
            if isinstance(at, str):
                listener = await stack.enter_async_context(SerialListener(at))
                wire = SerialWire(listener)
            else:
                listener = await stack.enter_async_context(WebSocketListener())
                inside = urlsplit(listener.url)
                assert inside.hostname is not None
                assert inside.port is not None
                wire = Wire(
                    (inside.hostname, inside.port),
                    at=at,
                    observer=lambda event, **more: recorder.add("proxy", event, **more),
                )
                await stack.enter_async_context(wire)
            stack.push_async_callback(device.stop)
            yield Stage(listener, wire.url, device, ears, pace=pace), wire
    except UsageError:
        raise
    except VrtError as error:
        ears.ledger.settle(alive.id, False, str(error))
    else:
        ears.ledger.settle(alive.id, True)


class _Failed(Unmet):
    """A check has failed, after which nothing else can be looked at."""


class Player:
    """One scenario in play."""

    def __init__(  # noqa: PLR0917  (the six things that a play is made of)
        self,
        scenario: Scenario,
        device: Device,
        stage: Stage,
        wire: Wire | SerialWire,
        recorder: Recorder,
        view: View,
    ) -> None:
        self.scenario = scenario
        self.device = device
        self.stage = stage
        self.wire = wire
        self.recorder = recorder
        self.view = view
        self.session: Session | None = None
        self.calls: dict[str, str] = {}
        """The id of each call by its name."""
        self._items = 0
        self._place = 0
        """Where the log was when the last step that did something was done."""
        self._at = 0.0
        self._over = False
        """What comes now is the end of what was played."""
        recorder.listen(self._show)

    async def run(self, sheet: Sheet) -> None:
        """All steps, until one that must succeed does not."""
        step = self.scenario.steps[0]
        try:
            async with asyncio.timeout(self.stage.pace.s(DEADLINE_S) + self.device.patience_s):
                for step in self.scenario.steps:
                    if step.does_something:
                        await self._do(step, sheet)
                    else:
                        await self._check(step, sheet)
        except NotTestable as absent:
            sheet.close(absent=str(absent))
            self.view.note(f"not testable: {absent}")
        except _Failed as failed:  # which its check has been told
            self.view.failed(self.recorder.now, f"{step.place}: {failed}")
            open_ = not all(self.stage.watch.ledger.settled(check.id) for check in self.scenario.checks)
            sheet.close(f"{step.place}: {failed}" if open_ else None)
        except Unmet as unmet:
            self.view.failed(self.recorder.now, f"{step.place}: {unmet}")
            sheet.close(f"{step.place}: {unmet}")
        except TimeoutError:
            sheet.close(f"{step.place}: the scenario took more than {DEADLINE_S:g} s")
        else:
            sheet.close()
        finally:
            self._over = True

    # --- what is done

    async def _do(self, step: Step, sheet: Sheet) -> None:
        place = self.recorder.mark()
        self._place, self._at = place, time.monotonic()
        verb = getattr(self, f"_do_{step.verb}")
        if step.check is None:
            await verb(step.value, step)
        else:
            try:
                await verb(step.value, step)
            except Unmet as unmet:
                raise self._unmet(sheet, step, step.check, str(unmet)) from None
            self._passed(sheet, step.check)
        lasting = (
            {"press", "speak", "wait"} if self.device.tells else {"wait"}
        )  # nobody knows when a hand began
        if step.verb not in lasting:
            self._at = time.monotonic()

    async def _do_open(self, value: Any, step: Step) -> None:
        connection, hello = await self._come(value, self.stage.fresh(), self.device.patience_s)
        self.session = session = self.stage.made()
        session.open(connection, hello, **value.get("ready", {}))
        self.stage.needs(session, *self.scenario.needs)

    async def _do_resume(self, value: Any, step: Step) -> None:
        session = self._open
        connection, hello = await self._come(value, self.stage.back(session), COME_S)
        session.last = max(0, session.last - value.get("forget", 0))
        since = max(0, resume_from(hello) - value.get("resend", 0))
        session.resume(connection, {**hello, "resumeFrom": since})

    async def _do_refuse(self, value: Any, step: Step) -> None:
        connection, _ = await self._come(value, self.stage.arrive(), COME_S)
        connection.refuse(value["code"], value.get("close", 0), recoverable=value.get("recoverable", False))

    async def _come(
        self, value: Mapping[str, Any], coming: Awaitable[tuple[Connection, Message]], usual: float
    ) -> tuple[Connection, Message]:
        """The device's next connection, in time, with the hello that it should have."""
        within = self.stage.s(value.get("within", usual))
        try:
            async with asyncio.timeout(within):
                connection, hello = await coming
        except TimeoutError:
            raise Unmet(f"the device did not come within {within:g} s") from None
        if not look.has(hello, look.named(value.get("hello", {}), self.calls)):
            raise Unmet(f"its hello should have {shown(value['hello'])}: {shown(hello)}")
        wrong = [name for name in value.get("without", ()) if name in hello]
        if wrong:
            raise Unmet(f"its hello should have no {', '.join(wrong)}: {shown(hello)}")
        return connection, hello

    async def _do_turn(self, value: Any, step: Step) -> None:
        self._open.turn(value)

    async def _do_state(self, value: Any, step: Step) -> None:
        self._open.turn(value, new=False)

    async def _do_call(self, value: Any, step: Step) -> None:
        session = self._open
        name, epoch = value["as"], value.get("epoch", session.epoch)
        self.calls[name] = call_id = f"{session.id[:8]}-{name}"
        members = {
            "callId": call_id,
            "name": value["tool"],
            "arguments": value.get("arguments", {}),
            "turnId": f"turn-{epoch}",
            "epoch": epoch,
        }
        self._number(step, "tool.call", **members)

    async def _do_again(self, value: Any, step: Step) -> None:
        session = self._open
        session.again(next(one for one in session.kept if one.get("callId") == self.calls[value]))

    async def _do_interrupted(self, value: Any, step: Step) -> None:
        epoch = self._open.epoch if value is True else value
        self._number(step, "interrupted", epoch=epoch, reason="server")

    async def _do_audio(self, value: Any, step: Step) -> None:
        if not value.get("goesOn"):
            self._items += 1
            self._open.item(f"item-{self._items}", value.get("epoch"))
        self._open.tone(value["ms"])

    async def _do_say(self, value: Any, step: Step) -> None:
        members = {name: member for name, member in value.items() if name != "type"}
        if "padTo" in step.more:
            bare = len(json.dumps({"v": 1, "seq": 1, "type": value["type"], **members, "x-pad": ""}))
            members["x-pad"] = "." * max(0, step.more["padTo"] - bare)
        self._number(step, value["type"], **members)

    def _number(self, step: Step, type_: str, /, **members: Any) -> None:
        session = self._open
        message = session.number(type_, **members)
        if not step.more.get("unsaid"):
            session.again(message)

    async def _do_frame(self, value: Any, step: Step) -> None:
        connection = self._connection
        if isinstance(value, str):
            connection.text(value)
        elif "hex" in value:
            connection.binary(bytes.fromhex(value["hex"]))
        else:
            connection.text(json.dumps(value["json"], ensure_ascii=False))

    async def _do_acks(self, value: Any, step: Step) -> None:
        self._open.acks = value

    async def _do_pongs(self, value: Any, step: Step) -> None:
        self._open.pongs = value

    async def _do_close(self, value: Any, step: Step) -> None:
        self._connection.close(value)

    async def _do_cut(self, value: Any, step: Step) -> None:
        self.wire.cut(reset=value == "reset")

    async def _do_stall(self, value: Any, step: Step) -> None:
        self.wire.stall(*_LANES[value])

    async def _do_flow(self, value: Any, step: Step) -> None:
        self.wire.flow(*_LANES[value])

    async def _do_throttle(self, value: Any, step: Step) -> None:
        self.wire.throttle(value["bytesPerSecond"], *_LANES[value.get("direction", "both")])

    async def _do_split(self, value: Any, step: Step) -> None:
        self.wire.split(value)

    async def _do_unreachable(self, value: Any, step: Step) -> None:
        self.wire.refusing = value

    async def _do_press(self, value: Any, step: Step) -> None:
        await self.device.press(value)

    async def _do_speak(self, value: Any, step: Step) -> None:
        await self.device.speak(value)

    async def _do_power(self, value: Any, step: Step) -> None:
        await self.device.power_cut()

    async def _do_wait(self, value: Any, step: Step) -> None:
        await asyncio.sleep(self.stage.s(value))

    # --- what is looked at

    async def _check(self, step: Step, sheet: Sheet) -> None:
        check, value = step.check, step.value
        assert check is not None
        if "event" in value and not self.device.tells:
            sheet.not_testable(check.id, "a board on the desk tells nothing but what is on the wire")
            return
        if step.verb == "expect":
            await self._expect(step, check, sheet)
        elif step.verb == "never":
            await self._rest(step)
            came = [event for event in self.recorder.events[self._place :] if self._match(value, event)]
            self._settle(sheet, step, check, not came, lambda: f"it came: {look.told(came[0])}")
        else:
            await self._rest(step)
            count = sum(self._match(value, event) for event in self.recorder.events)
            self._settle(
                sheet, step, check, count == step.more["is"], lambda: f"{count} came, not {step.more['is']}"
            )

    async def _expect(self, step: Step, check: Check, sheet: Sheet) -> None:
        value, within = step.value, self.stage.s(step.more.get("within", WITHIN_S))
        if "results" in value:
            await self._in_order(step, check, sheet, within)
            return
        deadline = self._at + within
        place = 0 if "result" in value else self._place
        named = {"result": value["result"]} if "result" in value else value

        def match(event: Event) -> bool:
            return self._match(named, event) or look.fatal(event)

        try:
            found = await self.recorder.wait_for(
                match, within=max(0.0, deadline - time.monotonic()), after=place
            )
        except NotSeen:
            raise self._unmet(
                sheet,
                step,
                check,
                f"no {look.wanted(value)} within {within:g} s; {look.came(self.recorder.events[self._place :])}",
            ) from None
        if look.fatal(found):
            raise self._unmet(sheet, step, check, f"the board stopped: {look.told(found)}")
        late = found["t"] + self.recorder.origin - deadline
        if late > 0:
            raise self._unmet(
                sheet, step, check, f"it came {late:.2f} s after its {within:g} s: {look.told(found)}"
            )
        if "result" in value and not self._match(value, found):
            raise self._unmet(
                sheet, step, check, f"it should have {shown(value['with'])}: {look.told(found)}"
            )
        self._passed(sheet, check)

    async def _in_order(self, step: Step, check: Check, sheet: Sheet, within: float) -> None:
        session, names = self._open, step.value["results"]
        wanted = [self.calls[name] for name in names]
        with contextlib.suppress(NotSeen):
            await self.recorder.wait_for(
                lambda event: {one["callId"] for one in session.results(*wanted)} == set(wanted),
                within=max(0.0, self._at + within - time.monotonic()),
                after=max(0, self.recorder.mark() - 1),
            )
        known = {call_id: name for name, call_id in self.calls.items()}
        came = [known[one["callId"]] for one in session.results(*wanted)]
        if came != names:
            raise self._unmet(
                sheet, step, check, f"within {within:g} s came the results of {', '.join(came) or 'none'}"
            )
        self._passed(sheet, check)

    async def _rest(self, step: Step) -> None:
        await asyncio.sleep(max(0.0, self._at + self.stage.s(step.more.get("for", FOR_S)) - time.monotonic()))

    def _match(self, value: Mapping[str, Any], event: Event) -> bool:
        return look.matches(value, event, self.calls)

    # --- what is told

    def _passed(self, sheet: Sheet, check: Check) -> None:
        sheet.settle(check.id, True)
        self.view.passed(self.recorder.now, check.title)

    def _settle(self, sheet: Sheet, step: Step, check: Check, ok: bool, detail: Callable[[], str]) -> None:
        """Of a check after which the scenario goes on."""
        if ok:
            self._passed(sheet, check)
        else:
            told = f"{step.place}: {detail()}"
            sheet.settle(check.id, False, told)
            self.view.failed(self.recorder.now, f"{check.title}: {told}")

    def _unmet(self, sheet: Sheet, step: Step, check: Check, why: str) -> _Failed:
        sheet.settle(check.id, False, f"{step.place}: {why}")
        return _Failed(f"{check.title}: {why}")

    def _show(self, event: Event) -> None:
        who = look.teller(event)
        if who and not self._over:
            self.view.say(event["t"], who, look.told(event))

    # --- the session

    @property
    def _open(self) -> Session:
        assert self.session is not None  # scenario.py has seen to it
        return self.session

    @property
    def _connection(self) -> Connection:
        connection = self._open.connection
        assert connection is not None
        return connection
