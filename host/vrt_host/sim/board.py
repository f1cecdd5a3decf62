"""A simulated board: the real firmware on a real MicroPython, with its hardware in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vrt_host.device.weave import tracebacks
from vrt_host.errors import UsageError, VrtError
from vrt_host.sim.console import Console
from vrt_host.sim.firmware import build, find_runtime
from vrt_host.sim.hardware import Event, Hardware
from vrt_host.sim.wav import Samples

if TYPE_CHECKING:
    from vrt_host.sim.cable import Cable

CONFIG: Mapping[str, Any] = {"listen": "open", "duplex": "full", "safe_boot_ms": 0}
"""How the simulated board's configuration differs from the firmware's defaults: it may listen while it speaks."""

_BOOT_S = 20.0
_STOP_S = 3.0
_EVENTS = 10_000  # kept for `events`; the oldest go first
_REPORTED = ("led", "output")  # what the firmware reports in the hardware's name
_TRACEBACK = "Traceback (most recent call last):"
_STOPPED = "KeyboardInterrupt:"
"""The last line of a traceback that is no failure: somebody has typed Ctrl-C."""
SERIAL = "serial:"
_TYPE_S = 0.05


def find_micropython() -> Path:
    """The MicroPython that runs the firmware; raises UsageError, naming VRT_MICROPYTHON, when there is none that fits."""
    return find_runtime().path


class SimBoard:
    """Boots on entering `async with` and stops on leaving it, which raises VrtError if the firmware failed meanwhile.

    `url` and `token` are the host's; `serial:PATH` gives the board a serial port, to which PATH leads while it is there (see
    `cable.py`), instead of a network: its console is there, too, and when the firmware ends, MicroPython's REPL. `config` overrides settings of the firmware; `heap` is the size of MicroPython's heap,
    such as "128k"; `tools` is a file of the user's own tools; `program` runs instead of the firmware's `main`; `flash` is the
    folder with the board's files, kept by the caller (default: a new one each time). `hardware` may be made beforehand, to
    give it noise or another speed; the board starts and stops it.

    Besides the hardware's, there are these events, of source "device": `console` (`text`, a line the firmware printed),
    `traceback` (`text`), `exit` (`code`, and `asked`: whether `stop` or `cut` was called).
    """

    def __init__(
        self,
        *,
        url: str,
        token: str | None = None,
        heap: str = "128k",
        config: Mapping[str, Any] | None = None,
        tools: Path | None = None,
        program: Path | None = None,
        flash: Path | None = None,
        hardware: Hardware | None = None,
    ) -> None:
        if not re.fullmatch(r"[1-9]\d{0,6}[kKmM]", heap):
            raise UsageError(f"a heap of {heap!r} makes no sense: say a size such as 128k or 1M")
        self.hardware = hardware or Hardware()
        self.runtime = find_runtime()
        self._build = build(self.runtime, program=program, tools=tools)
        self.note = self._build.note
        """What the operator should know of this build, or an empty text."""
        self._heap = heap
        self.cable: Cable | None = None
        """The serial port, once entered."""
        self._port = Path(url.removeprefix(SERIAL)) if url.startswith(SERIAL) else None
        if self._port is not None:
            url = SERIAL
        self._config = {**CONFIG, "url": url, **({"token": token} if token else {}), **(config or {})}
        self._kept = flash
        self._stack = contextlib.AsyncExitStack()
        self._console: Console | None = None
        self._ending: asyncio.Task[None] | None = None
        self._traceback: list[str] = []
        self._latest = float("inf")  # the time of the event before which the firmware printed
        self._asked = False
        self._failures: list[str] = []
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._listeners: list[Callable[[Event], None]] = []

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.hardware)
            self.hardware.listen(self._happened)
            self.flash = self._kept or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="vrt-sim-"))
            )
            if self._port is not None:
                self.cable = _cable(self._port, self._spoke)
                stack.callback(self.cable.close)
            stack.push_async_callback(self.cut)
            await self.boot()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        await self._stack.aclose()
        if kind is None:
            self.check()

    @property
    def speaker_samples(self) -> Samples:
        """Every sample that left the DAC so far, at 24 kHz, from `hardware.speaker.start` on."""
        self.hardware.settle()
        return self.hardware.speaker.samples

    @property
    def mic_samples(self) -> Samples:
        """Every sample the microphone picked up so far, at 16 kHz, from `hardware.microphone.start` on."""
        self.hardware.settle()
        return self.hardware.microphone.samples

    def say(self, samples: Samples, at: float | None = None) -> tuple[float, float]:
        """Let the microphone hear int16 samples at 16 kHz; returns when on the hardware's clock, (start, end)."""
        return self.hardware.say(samples, at)

    async def press(self, seconds: float) -> None:
        """Hold the button for so long."""
        await self.hardware.hold(seconds)

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with every event to come, on the event loop."""
        self._listeners.append(listener)

    async def events(self) -> AsyncIterator[Event]:
        """Every event since the start, in order, until `stop` or the firmware's own end. For one consumer."""
        while (event := await self._queue.get()) is not None:
            yield event

    def check(self) -> None:
        """Raise VrtError when the firmware printed a traceback, or ended when nobody asked."""
        if self._failures:
            raise VrtError("the board failed: " + "; ".join(self._failures))

    async def boot(self) -> None:
        """Power on. Raises VrtError when the firmware does not reach its hardware."""
        self.flash.mkdir(parents=True, exist_ok=True)
        (self.flash / "config.json").write_text(json.dumps(self._config), "utf-8")
        arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def watch(event: Event) -> None:
            if event["event"] in ("board", "exit") and not arrived.done():
                arrived.set_result(event["event"])

        self._listeners.append(watch)
        self._asked = False
        await self._run("-m", "main")
        try:
            async with asyncio.timeout(_BOOT_S):
                if await arrived == "exit":
                    self.check()
        except TimeoutError:
            await self.cut()
            raise VrtError(f"the board did not boot within {_BOOT_S:g} s") from None
        finally:
            self._listeners.remove(watch)

    async def _run(self, *words: str) -> None:
        """Start MicroPython: on a serial port it has a prompt at the end, or at once."""
        cable = self.cable
        environment = {
            **os.environ,
            "VRT_SIM": self.hardware.address,
            "MICROPYPATH": os.pathsep.join([*self._mount(), ".frozen"]),
        }
        streams: dict[str, Any] = {"stdin": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.STDOUT}
        if cable is not None:
            words = ("-i", *words)
            environment["VRT_SIM_SERIAL"] = "1"
            streams = {"stdin": cable.slave, "stdout": cable.slave, "stderr": cable.slave}
        _, self._console = await asyncio.get_running_loop().subprocess_exec(
            lambda: Console(self._printed, None if cable is None else cable.drain),
            self.runtime.path,
            *("-X", f"heapsize={self._heap}", *words),
            start_new_session=True,  # Ctrl-C in the terminal is for this process, which then stops the board in order
            cwd=self.flash,
            env=environment,
            **streams,
        )
        self._ending = asyncio.create_task(self._until_end(self._console))

    def _mount(self) -> list[str]:
        """The folders of the build under short names, as on a board: every module keeps its path in the heap."""
        names = []
        for number, folder in enumerate(self._build.folders):
            name = f"lib{number}"
            (self.flash / name).unlink(missing_ok=True)
            (self.flash / name).symlink_to(folder)
            names.append(name)
        return names

    async def stop(self) -> None:
        """Power off in order: the firmware sees its hardware go and cleans up."""
        self._asked = True
        self.hardware.disconnect()
        leaving = None if self.cable is None else asyncio.create_task(self._leave(self.cable))
        await self._end(_STOP_S)
        if leaving is not None:
            leaving.cancel()
        self._queue.put_nowait(None)

    async def _leave(self, cable: Cable) -> None:
        """Ctrl-D at the prompt ends MicroPython, which has one as soon as the firmware has ended."""
        while True:
            cable.type(b"\x04")
            await asyncio.sleep(_TYPE_S)

    async def cut(self) -> None:
        """Cut the power: the firmware ends between any two instructions. `boot` starts it again on the same flash."""
        self._asked = True
        await self._end(0)

    async def _end(self, patience: float) -> None:
        if self._console is None or self._ending is None:
            return
        try:
            async with asyncio.timeout(patience):
                await asyncio.shield(self._ending)
        except TimeoutError:
            self._console.kill()
            await self._ending

    def _spoke(self, data: bytes) -> None:
        """Bytes that came over the cable and belong to no frame."""
        if self._console is not None:
            self._console.printed(data)

    def _printed(self, text: str) -> None:
        """A line that the firmware printed; the lines of a traceback are one event."""
        if text != _TRACEBACK and not self._traceback:
            self._tell(self._event("console", text=text))
            return
        self._traceback.append(tracebacks.readable(text))
        if self.cable is not None and text.startswith(_STOPPED):
            lines, self._traceback = self._traceback, []
            for line in lines:
                self._tell(self._event("console", text=line))
            return
        if text != _TRACEBACK and not text.startswith("  "):
            self._fail_with_traceback()

    def _fail_with_traceback(self) -> None:
        lines, self._traceback = self._traceback, []
        self._fail("traceback", "\n".join(lines))

    async def _until_end(self, console: Console) -> None:
        code = await console.ended
        cable = self.cable
        if cable is not None:
            prompt = cable.prompt
            cable.ended()
            if prompt and not self._asked and code == 0:
                await self._soft_reboot(cable, prompt)
                return
        if self._traceback:
            self._fail_with_traceback()
        if not self._asked:
            self._failures.append(f"it ended by itself with code {code}")
        self._tell(self._event("exit", code=code, asked=self._asked))
        if not self._asked:
            self._queue.put_nowait(None)

    async def _soft_reboot(self, cable: Cable, prompt: str) -> None:
        """Ctrl-D at a prompt: MicroPython starts again, and the firmware with it, unless the prompt is a program's (`raw`)."""
        cable.rebooted()
        if prompt == "raw":
            await self._run()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BOOT_S):
                    await cable.prompted()
                    cable.type(b"\x01")
        else:
            await self._run("-m", "main")

    def _fail(self, name: str, text: str) -> None:
        self._failures.append(text)
        self._tell(self._event(name, text=text))

    def _event(self, name: str, **fields: Any) -> Event:
        return {"t": min(self.hardware.now, self._latest), "source": "device", "event": name, **fields}

    def _happened(self, event: Event) -> None:
        """An event of the hardware, or one that the firmware reports, which has its place among what is printed."""
        reported = event["source"] == "device" or event["event"] in _REPORTED
        if self._console is None or not reported:
            self._tell(event)
            return
        self._latest = event["t"]
        self._console.drain()
        self._latest = float("inf")
        self._tell(event)
        self._console.passed()

    def _tell(self, event: Event) -> None:
        if self._queue.qsize() >= _EVENTS:
            self._queue.get_nowait()
        self._queue.put_nowait(event)
        for listener in list(self._listeners):
            listener(event)


def _cable(path: Path, printed: Callable[[bytes], None]) -> Cable:
    try:
        from vrt_host.sim.cable import Cable  # noqa: PLC0415  (there are no such terminals on Windows)
    except ImportError:
        raise UsageError("a simulated board has a serial port on Linux and macOS alone") from None
    return Cable(path, printed)
