"""`vrt sim`: the firmware on a simulated board, with a simulated or a real user."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from vrt_host.config import DEFAULT_PORT, is_loopback
from vrt_host.errors import UsageError, VrtError
from vrt_host.harness import user as plans
from vrt_host.harness.live import View, console
from vrt_host.harness.recorder import Event, NotSeen, Recorder, to_line
from vrt_host.harness.sound import RATE, conversation
from vrt_host.harness.story import Narrator
from vrt_host.harness.user import Presses, User
from vrt_host.harness.watch import animate, watch
from vrt_host.sim import say, wav
from vrt_host.sim.board import SERIAL, SimBoard
from vrt_host.sim.microphone import Microphone
from vrt_host.sim.say import Utterance
from vrt_host.sim.wav import Samples

URL = f"ws://127.0.0.1:{DEFAULT_PORT}/"
CONNECT_S = 30.0
"""A run that has something to say gives up when the host is not there for so long."""
LINGER_S = 30.0
"""How long after the last answer the event of `--until` may still come."""

EXAMPLES = """\
examples (with `vrt serve` in another terminal):
  vrt sim --say "turn on the light"            say one sentence, play the answer, end
  vrt sim --say "unlock the front door" --press auto
                                               and hold the button when the board asks for it
  vrt sim --say "check the house" --say "stop@4"
                                               interrupt the answer 4 s after the connection
  vrt sim --wav morning.wav --out both.wav     play a recording; keep both sides as a stereo WAV
  vrt sim --mic                                talk to it yourself; Enter holds the button
  vrt sim --url serial:/tmp/board --heap 192k  a board on a cable, for `vrt serve --serial /tmp/board` (docs/serial.md)
  vrt sim --tools mine.py --say "water the plants"
                                               with your own tools (docs/tools.md)
  vrt sim --set voice_confirm=true --tools mine.py --say "open the vault" --say yes
                                               ... of which some are confirmed by voice
  vrt sim --json --until result --say "lock the back door" | jq .
                                               every event as a line of JSON, until the call has its result

--say and --wav may be repeated and mixed. With @SECONDS one starts at that time after the connection; without, when
the answer to the one before is over. The run ends after the last answer, or with --until.
An answer is over when the board rests again; or, which is said, when it stays open without a sound for 5 s (`vrt serve
--agent echo` never ends one while the microphone is on). What has not begun within 10 s, or was never heard, is none.
--press answers the requests for the button: N@SECONDS holds it that long at the Nth request (a second confirms, less
refuses), `auto` confirms the others, `never` (the default) lets them expire.
The token is read from --token-file or from VRT_TOKEN, never from the command line, where others could see it.

exit code:
  0    all that was asked for happened (whether a lock opened is not asked for: see --until and --json)
  1    it did not: no session within 30 s, a sentence without an answer, no event of --until, a board that failed
  2    the command line, or a file that it names, cannot be used
  130  Ctrl-C before the end; where only Ctrl-C ends it, that is 0
"""

_UNREACHED = ("refused", "dns", "unreachable", "timeout")
"""What the board says when nobody answers at all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt sim`."""
    parser.epilog = EXAMPLES
    parser.allow_abbrev = False  # `--token SECRET` is not `--token-file`
    parser.add_argument(
        "--url",
        default=URL,
        help=f"the host's address, or serial:PATH to make the board's serial port at PATH (default: {URL})",
    )
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="the certificate to trust for wss://, PEM or DER"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="the board's token, see `vrt token`")
    parser.add_argument(
        "--say", action=_Said, dest="said", metavar="TEXT[@SECONDS]", help="say this into the microphone"
    )
    parser.add_argument(
        "--wav",
        action=_Said,
        dest="said",
        metavar="FILE[@SECONDS]",
        help="play this file into it, of any rate and width",
    )
    parser.add_argument("--mic", action="store_true", help="use the microphone of this computer")
    parser.add_argument(
        "--press",
        action="append",
        default=[],
        metavar="N@SECONDS|auto|never",
        help="how the board's requests for the button are answered",
    )
    parser.add_argument(
        "--heap", default="128k", metavar="SIZE", help="of MicroPython's memory (default: 128k)"
    )
    parser.add_argument("--tools", type=Path, metavar="FILE", help="your own tools, instead of the house's")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="a setting of the firmware's (firmware/vrt/config.py), such as listen=button or ping_ms=5000",
    )
    parser.add_argument("--out", type=Path, metavar="WAV", help="keep both sides: user left, speaker right")
    parser.add_argument(
        "--json", action="store_true", help="print every event as a line of JSON, and nothing else"
    )
    parser.add_argument(
        "--until",
        action="append",
        default=[],
        metavar="EVENT|SECONDS",
        help="end at this event, such as `result` or `played`, or time (repeated: whichever comes first)",
    )


class _Said(argparse.Action):
    """Keeps `--say` and `--wav` in the order in which they were given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        kept = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*kept, (option_string, values)])


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for, checked."""

    url: str
    utterances: Sequence[Utterance]
    sounds: Sequence[Samples]
    presses: Presses
    events: Sequence[str]
    seconds: float | None
    mic: bool
    out: Path | None
    json: bool

    @property
    def endless(self) -> bool:
        """Only Ctrl-C ends it."""
        return not self.utterances and not self.events and self.seconds is None

    @property
    def ends_with_the_talk(self) -> bool:
        """It ends when everything has been said and answered."""
        return bool(self.utterances) and not self.events and self.seconds is None


def run(args: argparse.Namespace) -> int:
    """Run the board; 0 when all that was asked for happened. Raises `UsageError` for what the operator can mend."""
    until = [plans.parse_until(word) for word in args.until]
    times = [word for word in until if isinstance(word, float)]
    utterances = [_utterance(option, word) for option, word in args.said or ()]
    presses = plans.parse_presses(args.press)
    board = SimBoard(
        url=_url(args.url, ca=args.ca is not None),
        token=_token(args.token_file),
        heap=plans.parse_heap(args.heap),
        tools=args.tools,
        config={
            **_settings(args.settings),
            **({} if args.ca is None else {"ca": str(_readable(args.ca).absolute())}),
        },
    )
    if args.out is not None:
        wav.save(args.out, np.zeros((0, 2), np.int16), RATE)  # an error comes better now than afterwards
    plan = Plan(
        url=args.url,
        utterances=utterances,
        sounds=say.sounds(utterances),
        presses=presses,
        events=[word for word in until if isinstance(word, str)],
        seconds=min(times, default=None),
        mic=args.mic,
        out=args.out,
        json=args.json,
    )
    try:
        return asyncio.run(_Run(plan, board).run())
    except UsageError:
        raise
    except VrtError as error:
        print(f"vrt sim: {error}", file=sys.stderr)
        return 1


def _utterance(option: str, word: str) -> Utterance:
    try:
        value, at = plans.parse_timed(word)
    except UsageError as error:
        raise UsageError(f"{option} {error}") from None
    return Utterance(text=value, at=at) if option == "--say" else Utterance(wav=Path(value), at=at)


def _url(url: str, *, ca: bool) -> str:
    if url.startswith(SERIAL):
        if url == SERIAL:
            raise UsageError(
                f"--url {url}: name the file that leads to the board's port, such as serial:/tmp/board"
            )
        return url
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"ws", "wss"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"--url {url}: write it as {URL} or wss://HOST:PORT/")
    if "@" in parts.netloc:
        raise UsageError("--url: a credential in an address ends up in logs; use --token-file or VRT_TOKEN")
    if parts.scheme == "wss" and not ca:
        raise UsageError(
            f"--url {url} needs --ca FILE: the certificate that the board is to trust, PEM or DER"
        )
    return url


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("VRT_TOKEN") or None
    token = _readable(path).read_text("utf-8", "replace").strip()
    if not token or any(char.isspace() for char in token):
        raise UsageError(f"{path} holds no token; `vrt token add NAME > {path}` makes one")
    return token


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` each, where a value that is no JSON is a text; the firmware checks them."""
    settings: dict[str, Any] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not name or not separator:
            raise UsageError(f"--set {word}: write it as NAME=VALUE, such as listen=button")
        if name in {"url", "token", "ca"}:
            raise UsageError(f"--set {name}: use --url, --token-file or --ca")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def _readable(path: Path) -> Path:
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    return path


class _Run:
    """One run of the board, from power on to its end."""

    def __init__(self, plan: Plan, board: SimBoard) -> None:
        self.plan = plan
        self.board = board
        self.recorder = Recorder()
        self.view = View(console(quiet=plan.json, unread=self._leave))
        self.stopped = asyncio.Event()
        self.unread = False
        if plan.json:
            self.recorder.listen(self._print)
        else:
            self.recorder.listen(Narrator(self.view).hear)
        self.recorder.listen(self._advise)
        self.unadvised = True
        watch(self.recorder, board)

    async def run(self) -> int:
        """Do it all; the exit code."""
        with self.view:
            async with contextlib.AsyncExitStack() as stack:
                if self.plan.out is not None:
                    stack.callback(self._save, self.plan.out)
                stack.enter_context(_signals(self.stopped))
                microphone = self._microphone()
                self._introduce()
                await stack.enter_async_context(self.board)
                if microphone is not None:
                    stack.enter_context(microphone)
                user = User(
                    self.board, self.recorder, self.plan.utterances, self.plan.sounds, self.plan.presses
                )
                stack.push_async_callback(user.close)
                stack.enter_context(self._keys(user))
                moving = asyncio.create_task(animate(self.view, self.recorder, self.board.hardware))
                stack.callback(moving.cancel)
                return await self._course(user)

    def _introduce(self) -> None:
        board = self.board
        version = ".".join(map(str, board.runtime.version))
        self.view.note(f"a simulated board on MicroPython {version} connects to {self.plan.url}")
        if board.note:
            self.view.note(board.note)

    def _print(self, event: Event) -> None:
        try:
            print(to_line(event), flush=True)
        except BrokenPipeError:  # the reader has seen enough
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  (until the end)
            self._leave()

    def _leave(self) -> None:
        self.unread = True
        self.stopped.set()

    def _advise(self, event: Event) -> None:
        """Say once, at the first connection, what to do if it does not come about."""
        if not self.unadvised or event["event"] not in {"lost", "ready"}:
            return
        self.unadvised = False
        if event["event"] == "lost" and (advice := _advice(self.plan.url, event["reason"])):
            if self.plan.json:
                print(f"vrt sim: {advice}", file=sys.stderr)
            else:
                self.view.note(advice)

    async def _course(self, user: User) -> int:
        """From the start to whatever ends it; the exit code."""
        plan = self.plan
        if plan.endless:
            self.view.note("Ctrl-C ends it")
        loop = asyncio.get_running_loop()
        talk = loop.create_task(self._talk(user))
        stop = loop.create_task(self.stopped.wait())
        dead = loop.create_task(self._event("exit"))
        refused = loop.create_task(self.recorder.wait_for(_gives_up, within=None))
        goals = {loop.create_task(self._event(name)) for name in plan.events}
        ends = {stop, dead, refused, *goals}
        if plan.seconds is not None:
            ends.add(loop.create_task(asyncio.sleep(plan.seconds, True)))
        try:
            done, _ = await asyncio.wait({talk, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if talk in done:
                await talk  # raises what went wrong in it
                if not plan.ends_with_the_talk:
                    patience = LINGER_S if plan.utterances and plan.seconds is None else None
                    done, _ = await asyncio.wait(ends, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (talk, *ends):
                task.cancel()
        if stop in done:
            return 0 if plan.endless or self.unread else 130
        if dead in done:
            self.board.check()
        if refused in done and not goals & done:
            raise VrtError(self._why())
        if plan.events and not goals & done:
            when = f"{LINGER_S:g} s of the last answer" if plan.seconds is None else f"{plan.seconds:g} s"
            raise VrtError(f"there was no event {' or '.join(plan.events)} within {when}")
        if plan.ends_with_the_talk and user.unanswered:
            raise VrtError(f"{user.unanswered} of {len(plan.utterances)} utterances got no answer")
        return 0

    async def _talk(self, user: User) -> None:
        patience = CONNECT_S if self.plan.utterances else None
        recorder = self.recorder
        try:
            first = await recorder.wait_for(
                lambda event: event["event"] == "ready" or _gives_up(event), within=patience
            )
        except NotSeen:
            first = {"event": "nothing"}
        if first["event"] != "ready":
            raise VrtError(self._why())
        await user.talk()

    def _why(self) -> str:
        """What the board says of its failure to connect."""
        told = {event["event"]: event for event in self.recorder.events if event["source"] == "device"}
        if "error" in told:  # it comes with the end of the connection, before or after it
            if told["error"]["code"] == "CONFIG":
                wrong = told["error"]["message"]
                mend = "; --set voice_confirm=true allows it" if "confirm='voice'" in wrong else ""
                raise UsageError(f"the board cannot use what it was given: {wrong}{mend}")
            why = f"the board gave up: {told['error']['code']}, {told['error'].get('message', '')}"
            return f"{why}; a larger --heap may help" if "MemoryError" in why else why
        if "lost" in told:
            reason = told["lost"]["reason"] or told["lost"]["code"]
            return f"no session within {CONNECT_S:g} s ({reason}); is the host there? `vrt serve` starts one"
        return f"no session within {CONNECT_S:g} s"

    async def _event(self, name: str) -> None:
        await self.recorder.wait_for(lambda event: event["event"] == name, within=None)

    def _microphone(self) -> Microphone | None:
        return Microphone(self.board.say) if self.plan.mic else None

    @contextlib.contextmanager
    def _keys(self, user: User) -> Iterator[None]:
        """Enter holds the button, where there is somebody to press it."""
        if self.plan.json or not sys.stdin.isatty() or os.name == "nt":
            yield
            return
        self.view.note("Enter holds the button for a second")
        loop = asyncio.get_running_loop()
        presses: set[asyncio.Task[None]] = set()

        def pressed() -> None:
            if not os.read(sys.stdin.fileno(), 1024):
                loop.remove_reader(sys.stdin)
                return
            task = asyncio.create_task(user.press(plans.HOLD_S))
            presses.add(task)
            task.add_done_callback(presses.discard)

        loop.add_reader(sys.stdin, pressed)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin)

    def _save(self, path: Path) -> None:
        both = conversation(self.board.hardware, self.recorder.origin, self.recorder.now)
        wav.save(path, np.stack(both, axis=1), RATE)
        self.view.note(f"both sides are in {path}")


def _gives_up(event: Event) -> bool:
    return event["source"] == "hardware" and event.get("state") in {"error", "denied"}  # its light


def _advice(url: str, reason: str) -> str:
    """What to do about a connection that failed for this reason; empty when the board's own word is enough."""
    parts = urlsplit(url)
    if reason in _UNREACHED:
        port = f" --port {parts.port}" if parts.port not in {None, DEFAULT_PORT} else ""
        where = "" if is_loopback(parts.hostname or "") else " there"
        return f"nobody answers at {url}: `vrt serve{port}`{where} starts a host; the board keeps trying"
    if reason.startswith("tls"):
        return f"{url} has no certificate that the board trusts; name it, or its authority's, with --ca FILE"
    if reason == "eof" and parts.scheme == "ws":
        return (
            f"{url} closed the connection at once; a host with --tls-cert is reached by wss:// and --ca FILE"
        )
    if reason.startswith(("http", "answer")):
        return f"what answers at {url} is no vRT host; check --url"
    return ""


@contextlib.contextmanager
def _signals(stopped: asyncio.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set `stopped`, so that the board is switched off in good order."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, stopped.set)
    except NotImplementedError:  # Windows: Ctrl-C arrives as KeyboardInterrupt
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
