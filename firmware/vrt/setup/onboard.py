# Brings Wi-Fi up at the start of the device, and lets somebody with a browser or a tool set it up over the serial console
# (improv.py) while there are no credentials, or for a while when they do not work.
# ruff: noqa: PLC0415  (what a start with Wi-Fi does not need is not imported)
import select
import sys
import time

import micropython
from micropython import const

from vrt import VERSION, diff

_JOIN_MS = const(20_000)  # that the known network gets before setting up is offered
_WINDOW_MS = const(60_000)  # of silence, after which it ends; without credentials it never does
_TRY_MS = const(25_000)  # that new credentials get: clients wait 30 s for what came of it
_FAILURES = const(2)  # of theirs; the first may be bad luck
_PAUSE_MS = const(500)  # in a packet: it has broken off
_LINGER_MS = const(3000)  # after it is done, for the last questions
_TIME_MS = const(10_000)  # to ask for the time
_LOOK_MS = const(10)
_CTRL_C = const(3)


def onboard(board, wifi, console=None):
    # Returns whether the device shall go on: with Wi-Fi, or without, which may come later. False: the button stopped it.
    # Ctrl-C does as well, by KeyboardInterrupt.
    if wifi.ssid:
        board.led("wifi")
        if not _wait(board, wifi, _JOIN_MS):
            return False
    if not wifi.up:
        setting = Setting(board, wifi, console or Console())
        try:
            if not setting.run():
                return False
        finally:
            setting.console.close()
    begun = time.ticks_ms()
    while wifi.up and wifi.obstacle(time.ticks_ms()) == "" and diff(time.ticks_ms(), begun) < _TIME_MS:
        board.wait(None, _LOOK_MS)
        wifi.poll(time.ticks_ms())
    return True


def _wait(board, wifi, most_ms):
    begun = time.ticks_ms()
    while not wifi.poll(time.ticks_ms()) and diff(time.ticks_ms(), begun) < most_ms:
        if board.button():
            print("vrt: stopped by the button")
            return False
        board.wait(None, _LOOK_MS)
    return True


class Setting:
    # Somebody may set us up. The credentials that were there stay until others have worked.
    def __init__(self, board, wifi, console):
        self.board = board
        self.wifi = wifi
        self.console = console
        self.old = (wifi.ssid, wifi.password)
        from vrt.setup.improv import Improv

        info = ("vRT Edge", VERSION, sys.platform + "/" + board.NAME, board.NAME)
        self.improv = Improv(console.write, info, self._scan)

    def run(self):
        # False: the button stopped it.
        board, wifi, improv = self.board, self.wifi, self.improv
        board.led("setup")
        board.event("wifi", state="setup", reason=wifi.reason)
        begun = heard = spoken = time.ticks_ms()
        tried = None  # (ssid, password) on trial
        while True:
            now = time.ticks_ms()
            if board.button():
                print("vrt: stopped by the button")
                return False
            byte = self.console.read()
            while byte is not None:
                heard = now
                if improv.feed(byte):
                    spoken = now  # to us
                elif byte == _CTRL_C:
                    raise KeyboardInterrupt
                byte = self.console.read()
            if diff(now, heard) >= _PAUSE_MS:
                improv.reset()
            if improv.wanted and improv.wanted is not tried:
                tried = improv.wanted
                wifi.change(tried[0], tried[1])
                begun = now
            if wifi.ssid:
                wifi.poll(now)
            if tried:
                if wifi.up:
                    self._keep()
                    tried = None
                    spoken = now
                elif wifi.failures >= _FAILURES or diff(now, begun) >= _TRY_MS:
                    improv.failed()
                    wifi.change(self.old[0], self.old[1])
                    tried = None
                    spoken = now
            elif (wifi.up and diff(now, spoken) >= _LINGER_MS) or (
                self.old[0] and diff(now, spoken) >= _WINDOW_MS
            ):
                return True
            board.wait(None, _LOOK_MS)

    def _keep(self):
        from vrt.setup.settings import change

        wifi = self.wifi
        try:
            change(
                self.board.storage + "config.json", {"wifi_ssid": wifi.ssid, "wifi_password": wifi.password}
            )
        except OSError as error:  # it is up all the same, this time
            self.board.event("error", code="CONFIG", message=f"config.json cannot be written ({error})")
        self.old = (wifi.ssid, wifi.password)
        self.improv.joined()

    def _scan(self):
        # The radio cannot look around while it connects; a trial goes first.
        wifi = self.wifi
        if self.improv.wanted:
            raise OSError("busy")
        if not wifi.up:
            wifi.leave()
        return wifi.wlan.scan()


class Console:
    # The serial console, byte by byte. A command of Improv holds the byte that Ctrl-C is: until close() that stops nothing by
    # itself.
    def __init__(self):
        self.ready = select.poll()
        self.ready.register(sys.stdin, select.POLLIN)
        if hasattr(micropython, "kbd_intr"):
            micropython.kbd_intr(-1)

    def read(self):
        for _ in self.ready.ipoll(0):
            data = sys.stdin.buffer.read(1)
            return data[0] if data else None
        return None

    def write(self, data):
        sys.stdout.buffer.write(data)

    def close(self):
        self.ready.unregister(sys.stdin)
        if hasattr(micropython, "kbd_intr"):
            micropython.kbd_intr(_CTRL_C)
