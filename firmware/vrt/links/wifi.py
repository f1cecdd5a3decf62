# The Wi-Fi of a device, under one owner: nobody else connects, and the driver does not try by itself. It is left before it is
# joined, and whoever cannot join waits longer each time. Also what stands between Wi-Fi and a host over TLS: the clock, and
# memory of the system's own heap. Allocates only when something changes.
import os
import time

from micropython import const

from vrt import diff, forget

_JOIN_MS = const(20_000)  # from connect() to an address
_STALE_MS = const(8000)  # a try's own failure is there by then; before, it may be that of the one before
_LEAVE_MS = const(250)  # from disconnect() to connect(): the driver tells of the first when it pleases
# Between tries half to all of a span that doubles.
_HALF_MS = const(500)
_CAP_MS = const(30_000)  # of half a span
_FAILURES = const(6)  # 500 ms doubled that often is above the cap

_OFF = const(0)
_WAITING = const(1)
_JOINING = const(2)
_UP = const(3)

# network.STAT_*, and reasons of a disconnection that the ESP32 port passes on (wifi_err_reason_t of ESP-IDF).
_CONNECTING = const(1001)
_GOT_IP = const(1010)
_IDLE = const(1000)
_LEFT = const(8)  # by ourselves: told late, of what was before
_PM_NONE = const(0)

_CLOSE_REPLACED = const(4000)  # a dead connection (§9.3)

_YEAR = const(2025)  # a clock that shows less is not set
_TLS_BLOCK = const(17 * 1024)  # a TLS record of 16 KiB with what is around it is received into one piece


class Wifi:
    # wlan: network.WLAN(STA_IF) or the like. random(n) -> 0 .. n-1. event: of the log. tls: the host wants TLS; its
    # certificate is valid in time, which ntp, a server's name, tells. clock(time as gmtime gives it) sets the time.
    def __init__(self, wlan, ssid, password, event, random=None, *, tls=False, ntp="", clock=None):
        self.wlan = wlan
        self.ssid = ssid
        self.password = password
        self.event = event
        self.random = random or _random
        self.tls = tls
        self.ntp = ntp
        self.up = False
        self.gone = False  # it was up, and is not any more; whoever acts upon it clears this
        self.led = "wifi"  # what the LED is to show, whatever else there is
        self.forget = None  # the gesture, see setup/forget.py
        self.reason = ""  # why it is not up, for people
        self.failures = 0
        self._set = clock
        self._clock = None  # while the time is asked for
        self._state = _OFF
        self._before = (
            0  # the status when it began to join: connect() does not clear a failure (network_wlan.c)
        )
        self._since = self._wait_ms = 0

    def change(self, ssid, password):
        # Another network from now on.
        self.ssid = ssid
        self.password = password
        self.leave()

    def leave(self):
        # Comes back with the next poll, and takes its time.
        self.up = False
        self.reason = ""
        self.failures = 0
        self._state = _OFF
        try:
            self.wlan.active(True)
            self.wlan.disconnect()
        except OSError:  # poll will hear of it
            pass

    def poll(self, now):
        # Whether it is up. To be called often.
        try:
            self._advance(now)
        except OSError as error:  # of the driver
            self._fail(now, f"the driver says {error}")
        return self.up

    def _advance(self, now):
        wlan, state = self.wlan, self._state
        if state == _UP:
            if not wlan.isconnected():
                self._fail(now, explain(wlan.status()))
        elif state == _JOINING:
            status = wlan.status()
            if status == _GOT_IP:
                self._arrive()
            elif status not in (_CONNECTING, _IDLE, _LEFT) and not (
                status == self._before and (diff(now, self._since) < _STALE_MS or self.signal())
            ):
                self._fail(now, explain(status))
            elif diff(now, self._since) >= _JOIN_MS:
                self._fail(now, "no IP address" if self.signal() else "no answer")
        elif state == _OFF or diff(now, self._since) >= self._wait_ms:
            wlan.active(True)
            wlan.config(reconnects=0)
            wlan.config(pm=_PM_NONE)  # power save holds audio back, and sends it in clumps
            if state == _OFF:
                self._leave(now, _LEAVE_MS)
            else:
                self._since = now
                self._state = _JOINING
                self._before = wlan.status()
                wlan.connect(self.ssid, self.password or None)

    def _arrive(self):
        self._state = _UP
        self.up = True
        self.failures = 0
        self.reason = ""
        made = {"ip": self.wlan.ifconfig()[0], "rssi": self.signal(), "idf_block": self.block()}
        self.event("wifi", state="up", **made)

    def _fail(self, now, reason):
        if self.up or reason != self.reason:
            self.event("wifi", state="down", reason=reason)
        self.gone = self.gone or self.up
        self.up = False
        self.reason = reason
        half = min(_HALF_MS << self.failures, _CAP_MS)
        self.failures = min(self.failures + 1, _FAILURES)
        self._leave(now, half + self.random(half))

    def _leave(self, now, wait_ms):
        self._state = _WAITING
        self._since = now
        self._wait_ms = wait_ms
        try:  # noqa: SIM105  (no contextlib here)
            self.wlan.disconnect()
        except OSError:  # it is not connected, or was not even started
            pass

    # --- the App

    def step(self, app, now):
        # In every look that the App takes: what goes over Wi-Fi ends with it.
        self.led = "" if self.poll(now) else "wifi"
        if self.forget:
            self.led = self.forget.step(app, now) or self.led
        if self.gone:
            self.gone = False
            if app.link.sock:
                app.link.close(_CLOSE_REPLACED)

    def ask(self, app, now):
        # Whether the link may be opened now. What stands in its way for longer counts as a connection that failed.
        reason = self.obstacle(now)
        if reason:
            app.session.again("lost", now)
            app.log.event("lost", reason=reason, code=0)
        return reason is None

    # --- the rest

    def signal(self):
        # Of the access point, in dBm; 0 when there is none that we belong to.
        try:
            return self.wlan.status("rssi")
        except OSError:
            return 0

    def block(self):
        # Bytes of the largest free piece of the system's own heap, which mbedTLS takes its buffers from; None: it has none.
        try:
            import esp32  # noqa: PLC0415  (only that chip has it)
        except ImportError:
            return None
        return max([region[2] for region in esp32.idf_heap_info(esp32.HEAP_DATA)])

    def obstacle(self, now):
        # None: the link may be opened. "": not yet. Else why it would fail, as a link's close_reason.
        if not self.up:
            return ""
        if not self.tls:
            return None
        if time.gmtime()[0] < _YEAR:
            if not self._clock:
                from vrt.setup.clock import Clock  # noqa: PLC0415

                self._clock = Clock(self.ntp, self.event, self._set)
            if not self._clock.poll(now):
                return ""
        if self._clock:
            self._clock = None
            forget("vrt.setup.clock")
        block = self.block()
        if block is None or block >= _TLS_BLOCK:
            return None
        self.event("error", code="TLS_NO_MEMORY", message=f"largest free block {block}, needs {_TLS_BLOCK}")
        return "tls_no_memory"


def _random(n):
    return int.from_bytes(os.urandom(2), "little") % n


def explain(status):
    # A status of the driver that ends a connection, in words.
    if status in (
        2,
        15,
        202,
        204,
        210,
    ):  # auth expired, 4-way handshake, auth failed, handshake, security does not fit
        return "wrong password"
    if status in (201, 211, 212):
        return "no such network"
    if status in (
        _CONNECTING,
        _IDLE,
        _LEFT,
        3,
        4,
        200,
    ):  # the station or the access point went, or its beacon
        return "the access point is gone"
    return f"error {status}"
