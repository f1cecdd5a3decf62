"""Updates over the air, whole: the real firmware in two slots on real MicroPython, the real host, TLS and signatures."""

import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import signal
from pathlib import Path

import pytest
from certificates import AUTHORITY, KEY, SERVER
from vrt_host.agents.echo import EchoAgent
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.device import build
from vrt_host.device.bundle import Bundle, make_key, sign
from vrt_host.device.weave import Firmware
from vrt_host.resources import root
from vrt_host.server import serve
from vrt_host.sim.board import find_micropython
from vrt_host.sim.hardware import Hardware
from vrt_host.updates import Updates

DEADLINE_S = 90

# The simulated board as one that can start again: the process ends at once, and the test starts another.
BOARD = """\
import os

from simboard import *

def restart():
    os.system("kill -9 $PPID")
"""
IMPATIENT = (
    ("_CALM_MS = const(30_000)", "_CALM_MS = const(200)"),
    ("_TRIAL_MS = const(180_000)", "_TRIAL_MS = const(4_000)"),
)


@dataclasses.dataclass(frozen=True)
class Profile:
    id: str
    folder: Path
    data: dict


@functools.cache
def compiled():
    return build.files(profile())


def profile():
    folder = root() / "boards" / "sim"
    return Profile("sim", folder, json.loads((folder / "board.json").read_text()))


@functools.cache
def woven(target, module, *changes):
    """The text of a module of the device, with changes to one of its sources."""
    text = (root() / "firmware" / f"{module.replace('.', '/')}.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    made = Firmware(root() / "firmware", root() / "boards", texts={module: text})
    return made.text(made.names(made.sources)[target])


def firmware(version, **changed):
    """A slot's files: the product's, in a hurry. `changed`: sources instead of modules."""
    made = build.tree(profile(), version=version)
    made["simboard.mpy"] = made.pop("board.mpy")
    made["board.py"] = BOARD.encode()
    for name, text in {"vrt/live": woven("vrt.live", "vrt.setup.live", *IMPATIENT), **changed}.items():
        del made[name + ".mpy"]
        made[name + ".py"] = text.encode()
    return made


class House:
    """A host, its folder of updates, and a board that is started again whenever it starts again."""

    def __init__(self, folder):
        self.folder = folder
        self.flash = folder / "flash"
        self.updates = folder / "updates"
        self.updates.mkdir()
        self.public = make_key(folder / "key.pem")
        self.token = TokenFile(folder / "tokens.json").add("porch")
        self.events = []
        self.changed = asyncio.Condition()
        for path, data in [
            *compiled().root.items(),
            *((f"a/{path}", data) for path, data in firmware("0.1.0").items()),
        ]:
            target = self.flash / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        (self.flash / "ca.pem").write_text(AUTHORITY)
        (self.flash / "update.pub").write_bytes(self.public.read_bytes())

    def publish(self, version, key=None, **changed):
        data = sign(Bundle("sim", version, 0, firmware(version, **changed)), key or self.folder / "key.pem")
        (self.updates / "sim.bundle").write_bytes(data)

    @property
    def slot(self):
        path = self.flash / "slot"
        return path.read_text() if path.exists() else ""

    def observe(self, event):
        self.events.append(event)
        asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self):
        async with self.changed:
            self.changed.notify_all()

    async def until(self, what):
        """Wait until `what()` is true; it is asked whenever something happens."""
        async with asyncio.timeout(DEADLINE_S), self.changed:
            await self.changed.wait_for(what)

    def versions(self):
        """Of the firmware, in the order of its hellos; the same one again is a connection or a start again."""
        return [
            event["message"]["device"]["firmware"]
            for event in self.events
            if event["event"] == "message.in"
            and isinstance(event["message"], dict)
            and event["message"].get("type") == "hello"
        ]

    def told(self, name, **fields):
        """The device's events of that name that have these fields."""
        return [event for event in self.events if event["event"] == name and fields.items() <= event.items()]

    @contextlib.asynccontextmanager
    async def open(self, monkeypatch):
        monkeypatch.setattr("vrt_host.server.TOKENS_EVERY_S", 0.2)
        cert, key = self.folder / "cert.pem", self.folder / "tls.pem"
        cert.write_text(SERVER)
        key.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{KEY}\n-----END EC PRIVATE KEY-----\n")
        config = ServerConfig(port=0, tls_cert=cert, tls_key=key, tokens=self.folder / "tokens.json")
        port = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve(
                config,
                EchoAgent,
                ready=port.set_result,
                observer=self.observe,
                updates=Updates(self.updates, 0),
            )
        )
        settings = {
            "url": f"wss://localhost:{await port}/",
            "token": self.token,
            "ca": "ca.pem",
            "update_key": "update.pub",
            "safe_boot_ms": 0,
        }
        (self.flash / "config.json").write_text(json.dumps(settings))
        async with Hardware() as hardware:
            hardware.listen(self.observe)
            living = asyncio.create_task(self._live(hardware))
            try:
                yield
            finally:
                living.cancel()
                serving.cancel()
                await asyncio.gather(living, serving, return_exceptions=True)
        for event in self.events:
            assert self.token not in json.dumps(event)

    async def _live(self, hardware):
        """The board, from start to start."""
        while True:
            process = await asyncio.create_subprocess_exec(
                find_micropython(),
                *("-X", "heapsize=256k", "main.py"),
                cwd=self.flash,
                env={**os.environ, "VRT_SIM": hardware.address, "MICROPYPATH": ".frozen"},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                text = (await process.communicate())[0].decode()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            self.observe({"event": "ended", "killed": process.returncode == -signal.SIGKILL, "text": text})


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


async def test_update_is_taken_and_stays_when_it_reaches_its_host(house, monkeypatch):
    async with house.open(monkeypatch):
        await house.until(lambda: house.versions() == ["0.1.0"])
        house.publish("0.2.0")
        await house.until(lambda: house.told("update", state="stays", version="0.2.0") and house.slot == "b ")
        assert set(house.versions()) == {"0.1.0", "0.2.0"}
        house.publish("0.10.0")
        await house.until(
            lambda: house.told("update", state="stays", version="0.10.0") and house.slot == "a "
        )


async def test_update_that_does_not_reach_its_host_is_taken_back_and_not_tried_again(house, monkeypatch):
    async with house.open(monkeypatch):
        await house.until(lambda: house.versions() == ["0.1.0"])
        broken = woven(
            "vrt.connect",
            "vrt.links.connect",
            ('reason = "dns"', 'reason = "broken"; host = "nowhere.invalid"'),
        )
        house.publish("0.2.0", **{"vrt/connect": broken})
        await house.until(lambda: house.told("update", state="goes back", version="0.2.0"))
        await house.until(lambda: house.versions()[-1] == "0.1.0" and house.slot == "a 0.2.0")
        fetched = len(house.told("update", state="fetch"))
        house.publish("0.3.0")
        await house.until(lambda: house.told("update", state="stays", version="0.3.0"))
        assert len(house.told("update", state="fetch")) == fetched + 1


async def test_update_that_crashes_is_taken_back(house, monkeypatch):
    async with house.open(monkeypatch):
        await house.until(lambda: house.versions() == ["0.1.0"])
        house.publish("0.2.0", **{"vrt/__init__": "raise ValueError('a bug')\n"})
        await house.until(lambda: house.slot == "a 0.2.0")
        await house.until(lambda: len(house.versions()) > 1)
        assert set(house.versions()) == {"0.1.0"}


async def test_update_signed_by_a_stranger_is_refused_once(house, monkeypatch):
    async with house.open(monkeypatch):
        await house.until(lambda: house.versions() == ["0.1.0"])
        make_key(house.folder / "stranger.pem")
        house.publish("0.2.0", key=house.folder / "stranger.pem")
        await house.until(lambda: house.told("error", code="UPDATE"))
        await house.until(lambda: house.told("ready"))
        assert house.slot == ""
        house.publish("0.3.0")
        await house.until(lambda: house.told("update", state="stays", version="0.3.0"))
        assert len(house.told("update", state="fetch")) == 2
