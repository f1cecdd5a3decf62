# Improv Wi-Fi over serial, the device's side: https://www.improv-wifi.com/serial (version 1). Pure: bytes in, packets out. A
# browser or a tool asks who we are, which networks we see, and gives us the credentials of one.
#
# Packet: "IMPROV", version 1, type, length of the data, data, checksum: the sum of all before it, its low byte. The data of a
# command, and of a result, is: number of the command, length of what follows, that.
from micropython import const

_HEADER = b"IMPROV\x01"
_STATE = const(1)  # types
_ERROR = const(2)
_COMMAND = const(3)
_RESULT = const(4)

_SETTINGS = const(1)  # commands
_CURRENT = const(2)
_INFO = const(3)
_NETWORKS = const(4)

READY = 2  # states
PROVISIONING = 3
PROVISIONED = 4

_FINE = const(0)  # errors
_INVALID = const(1)
_UNKNOWN = const(2)
_CANNOT_CONNECT = const(3)

_SSID = const(32)  # bytes, at most (IEEE 802.11)
_PASSWORD = const(64)


class Improv:
    # write(bytes): to the port. info: strings: firmware, its version, chip, name of the device, and more. scan() -> networks as
    # network.WLAN.scan gives them; raises OSError. url: where to go when all is done, or "".
    def __init__(self, write, info, scan, url=""):
        self.write = write
        self.info = info
        self.scan = scan
        self.url = url
        self.state = READY
        self.wanted = None  # (ssid, password) that are to be tried; whoever does calls joined() or failed()
        self._packet = bytearray()

    def feed(self, byte):
        # One byte from the port. False: it is no part of a packet.
        packet = self._packet
        n = len(packet)
        if n < len(_HEADER):
            if byte != _HEADER[n]:
                self.reset()
                if byte != _HEADER[0]:
                    return False
                packet = self._packet
            packet.append(byte)
            return True
        packet.append(byte)
        if n >= 9 and n == 9 + packet[8]:
            self.reset()
            self._take(packet)
        return True

    def reset(self):
        # What has come of a packet does not count: there was a pause, or another byte.
        self._packet = bytearray()

    def joined(self):
        # The credentials work.
        self.wanted = None
        self._change(PROVISIONED)
        self._result(_SETTINGS, self._place())

    def failed(self):
        # They do not; the next may.
        self.wanted = None
        self._error(_CANNOT_CONNECT)
        self._change(READY)

    def _take(self, packet):
        if packet[7] != _COMMAND:
            return
        data = packet[9:-1]
        if sum(packet[:-1]) & 255 != packet[-1] or len(data) < 2 or data[1] != len(data) - 2:
            self._error(_INVALID)
            return
        command, data = data[0], data[2:]
        if command == _SETTINGS:
            self._settings(data)
        elif command == _CURRENT:
            self._error(_FINE)
            self._change(self.state)
            if self.state == PROVISIONED:
                self._result(_SETTINGS, self._place())
        elif command == _INFO:
            self._error(_FINE)
            self._result(_INFO, self.info)
        elif command == _NETWORKS:
            self._error(_FINE)
            self._networks()
        else:
            self._error(_UNKNOWN)

    def _settings(self, data):
        try:
            ssid, rest = _text(data, _SSID)
            password, rest = _text(rest, _PASSWORD)
        except (ValueError, IndexError):  # UnicodeError is a ValueError
            ssid = password = rest = ""
        if rest or not ssid:
            self._error(_INVALID)
            return
        self._error(_FINE)
        self.wanted = (ssid, password)
        self._change(PROVISIONING)

    def _networks(self):
        # The strongest of each name first, then an empty result as the end. What cannot be said in a packet is passed over.
        try:
            found = sorted(self.scan(), key=lambda entry: -entry[3])
        except OSError:  # while it connects, the radio cannot look around
            found = ()
        told = set()
        for entry in found:
            try:
                ssid = bytes(entry[0]).decode()
            except ValueError:
                continue
            if ssid and ssid not in told:
                told.add(ssid)
                self._result(_NETWORKS, (ssid, str(entry[3]), "YES" if entry[4] else "NO"))
        self._result(_NETWORKS, ())

    def _place(self):
        return (self.url,) if self.url else ()

    def _change(self, state):
        self.state = state
        self._send(_STATE, bytes((state,)))

    def _error(self, error):
        self._send(_ERROR, bytes((error,)))

    def _result(self, command, texts):
        data = b""
        for text in texts:
            encoded = text.encode()
            data += bytes((len(encoded),)) + encoded
        self._send(_RESULT, bytes((command, len(data))) + data)

    def _send(self, kind, data):
        # On a line of its own: clients look for it at the beginning of one.
        self.write(b"\n" + packet(kind, data) + b"\n")


def packet(kind, data):
    made = _HEADER + bytes((kind, len(data))) + data
    return made + bytes((sum(made) & 255,))


def _text(data, most):
    # The first string of some, and the others. Raises ValueError, IndexError.
    n = data[0]
    if n > most or n >= len(data):
        raise ValueError
    return bytes(data[1 : n + 1]).decode(), data[n + 1 :]
