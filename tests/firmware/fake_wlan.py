# network.WLAN(STA_IF) as the ESP32 port documents it and its source (ports/esp32/network_wlan.c) has it: connect() returns at
# once; what comes of it is told later, by status(): 1001 while it tries, 1010 with an address, else the reason of the last
# disconnection. The driver tries again by itself, for ever, unless config(reconnects=0). A disconnection that we wanted is told
# late too, as reason 8, and not when there was nothing to disconnect. Some reasons stay until there is an address, whatever
# is tried meanwhile. Time passes by advance(ms).
IDLE, CONNECTING, GOT_IP = 1000, 1001, 1010
NO_AP, WRONG_PASSWORD, REFUSED, BEACON, LEFT = 201, 15, 202, 200, 8
STAY = (201, 202, 210, 211, 212)


class AccessPoint:
    def __init__(self, ssid="home", password="secret-key", hidden=False):
        self.ssid = ssid
        self.password = password
        self.hidden = hidden
        self.on = True
        self.dhcp = True


class FakeWlan:
    def __init__(self, *points):
        self.points = list(points)
        self.started = False
        self.reconnects = -1
        self.pm = 1
        self.asked = None  # (ssid, key) of connect()
        self.point = None  # that we belong to
        self.address = ""
        self.cause = 0
        self.tries = 0  # of the driver since connect()
        self.trying = False
        self.dhcp_ms = 300
        self.wrong = WRONG_PASSWORD  # how it tells of that
        self.connects = []  # ms of each connect()
        self.ms = 0
        self.due = []  # [ms, what]
        self.scans = 0
        self.left_ms = 50  # until a disconnection that we wanted is told

    # --- as MicroPython has it

    def active(self, on=None):
        if on is not None:
            self.started = on
        return self.started

    def config(self, name=None, **values):
        if name:
            return {"mac": b"\x02\x00\x00\x12\x34\x56"}[name]
        if not self.started:
            raise OSError("WiFi Not Initialized")
        self.reconnects = values.get("reconnects", self.reconnects)
        self.pm = values.get("pm", self.pm)
        return None

    def connect(self, ssid, key=None):
        if not self.started:
            raise OSError("Wifi Not Started")
        if self.trying or self.point:
            raise OSError("Wifi Internal State Error")
        self.asked = (ssid, key)
        self.tries = 0
        self.trying = True
        self.connects.append(self.ms)
        self.due.append([self.ms + 1500, "try"])

    def disconnect(self):
        if not self.started:
            raise OSError("Wifi Not Started")
        self.due = []
        if self.trying or self.point:
            self.due = [[self.ms + self.left_ms, "left"]]
        self.trying = False
        self.asked = self.point = None
        self.address = ""

    def isconnected(self):
        return bool(self.address)

    def ifconfig(self):
        return (self.address, "255.255.255.0", "192.168.1.1", "192.168.1.1")

    def status(self, what=None):
        if what == "rssi":
            if not self.point:
                raise OSError("Wifi Not Connected")
            return -55
        if self.address:
            return GOT_IP
        if self.cause in STAY:
            return self.cause
        if self.cause == LEFT:
            return IDLE
        if self.asked and (self.reconnects < 0 or self.tries <= self.reconnects):
            return CONNECTING
        return self.cause or IDLE

    def scan(self):
        self.scans += 1
        if not self.started:
            raise OSError("STA must be active")
        return [
            (
                b"" if point.hidden else point.ssid.encode(),
                b"\0" * 6,
                6,
                -55,
                3 if point.password else 0,
                point.hidden,
            )
            for point in self.points
            if point.on
        ]

    # --- what happens

    def advance(self, ms):
        self.ms += ms
        if self.point and not self.point.on:
            self._lost(BEACON)
        due = [what for at, what in self.due if at <= self.ms]
        self.due = [entry for entry in self.due if entry[0] > self.ms]
        for what in due:
            if what == "left":
                self.cause = LEFT
                self.tries += 1
            elif what == "try":
                self._try()
            elif what == "dhcp" and self.point and self.point.dhcp:
                self.address = "192.168.1.50"
                self.cause = 0

    def _try(self):
        found = [point for point in self.points if point.on and point.ssid == self.asked[0]]
        if not found:
            self._lost(NO_AP)
        elif found[0].password and found[0].password != self.asked[1]:
            self._lost(self.wrong)
        else:
            self.trying = False
            self.point = found[0]
            self.due.append([self.ms + self.dhcp_ms, "dhcp"])

    def _lost(self, cause):
        self.point = None
        self.address = ""
        self.cause = cause
        self.tries += 1
        self.trying = False
        if self.asked and (self.reconnects < 0 or self.tries <= self.reconnects):
            self.due.append([self.ms + 1500, "try"])
