"""What `vrt doctor` runs on a board. The secrets are read there from `config.json`, and none is printed.

Every one prints JSON as its last line, and something every second while it waits. They need the helpers of deploy.py.
"""

from __future__ import annotations

import json
from typing import Any

from vrt_host.device.build import LISTING
from vrt_host.device.repl import Repl

_NETWORK_S = 40.0  # a name that is looked for, a scan or a handshake can be silent for so long

_DAMAGED = """
_l = {}
try:
    with open(%r) as _f:
        _l = json.load(_f)['files']
except (OSError, ValueError, KeyError):
    pass
_bad = []
for _p in _l:
    try:
        _ok = _hash(%r + _p) == _l[_p]
    except OSError:
        _ok = False
    if not _ok:
        _bad.append(_p)
    print()
del _l
print(json.dumps(_bad))
"""

# In the firmware's words for what the driver says. 1000, 1001: idle, connecting; 8: we left, told late. The failure of the try
# before stays (micropython ports/esp32/network_wlan.c), so an old one counts after 8 s.
_WIFI = """
def _wifi():
    try:
        import network
    except ImportError:
        return {'state': 'absent'}
    import time
    with open('config.json') as f:
        c = json.load(f)
    if not c.get('wifi_ssid'):
        return {'state': 'down', 'reason': 'no name', 'seen': []}
    w = network.WLAN(network.STA_IF)
    w.active(True)
    seen = []
    try:
        w.disconnect()
    except OSError:
        pass
    for e in w.scan():
        n = e[0].decode() if e[0] else ''
        if n and n not in seen:
            seen.append(n)
    print()
    try:
        w.config(reconnects=0)
    except (OSError, ValueError, TypeError):
        pass
    old = w.status()
    w.connect(c['wifi_ssid'], c.get('wifi_password') or None)
    why = 'no answer'
    for i in range(80):
        if w.isconnected():
            try:
                r = w.status('rssi')
            except (OSError, ValueError, TypeError):
                r = None
            return {'state': 'up', 'ip': w.ifconfig()[0], 'rssi': r}
        s = w.status()
        if s not in (1000, 1001, 8) and (s != old or i > 32):
            why = _link('wifi').explain(s)
            break
        time.sleep_ms(250)
        if i % 4 == 0:
            print()
    return {'state': 'down', 'reason': why, 'seen': seen}
print(json.dumps(_wifi()))
"""

_BLOCK = """
try:
    import esp32
    print(max([r[2] for r in esp32.idf_heap_info(esp32.HEAP_DATA)]))
except ImportError:
    print('null')
"""

_CLOCK = """
def _clock(server):
    import time
    if server and time.gmtime()[0] < 2025:
        try:
            import ntptime
            ntptime.host = server
            ntptime.settime()
        except (ImportError, OSError, OverflowError):
            pass
    return list(time.gmtime()[:6])
print(json.dumps(_clock(%r)))
"""

# RFC 6455 by hand, with the key 0, and a hello as in schema/vrt-1.3.md 5.2.
_HOST = """
import sys, os, binascii, socket
def _host():
    with open('config.json') as f:
        c = json.load(f)
    tls, host, port, path, header = _link('url').parse(c['url'])
    stage = 'dns'
    s = None
    try:
        a = socket.getaddrinfo(host, port)[0][-1]
        print()
        stage = 'connect'
        s = socket.socket()
        s.settimeout(8)
        s.connect(a)
        if tls:
            stage = 'tls'
            ca = None
            if c.get('ca'):
                with open(c['ca'], 'rb') as f:
                    ca = f.read()
            s = _link('tls').context(ca).wrap_socket(s, server_hostname=host)
        stage = 'upgrade'
        print()
        key = binascii.b2a_base64(os.urandom(16))[:-1].decode()
        s.write(('GET %s HTTP/1.1\\r\\nHost: %s\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n'
            'Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: %s\\r\\n\\r\\n' % (path, header, key)).encode())
        line = s.readline()
        if line[9:12] != b'101':
            return {'stage': 'upgrade', 'code': 0, 'reason': 'it is no vRT host: ' + line[:40].decode().strip()}
        while s.readline().strip():
            pass
        stage = 'hello'
        m = {'v': 1, 'seq': 0, 'type': 'hello', 'tools': [], 'device': {'id': c.get('id') or 'doctor'}}
        if c.get('token'):
            m['auth'] = {'token': c['token']}
        m = json.dumps(m).encode()
        s.write(b'\\x81\\xfe' + bytes((len(m) >> 8, len(m) & 255)) + bytes(4) + m)
        while True:
            print()
            h = s.read(2)
            if not h or len(h) < 2:
                return {'stage': stage, 'code': 0, 'reason': 'it hung up'}
            n = h[1] & 127
            if n > 125:
                n = int.from_bytes(s.read(2 if n == 126 else 8), 'big')
            if n > 65536:
                return {'stage': stage, 'code': 0, 'reason': 'it is no vRT host'}
            d = s.read(n) if n else b''
            if h[0] & 15 == 8:
                return {'stage': stage, 'code': int.from_bytes(d[:2], 'big'), 'reason': d[2:].decode()}
            if h[0] & 15 == 1:
                m = json.loads(d)
                if m.get('type') == 'ready':
                    s.write(b'\\x88\\x82' + bytes(4) + b'\\x03\\xe8')
                    return {'stage': 'ready', 'code': 0, 'reason': ''}
                if m.get('type') == 'error':
                    return {'stage': stage, 'code': 0, 'reason': m.get('code', '')}
    except (OSError, ValueError) as e:
        return {'stage': stage, 'code': 0, 'reason': str(e.args[-1]) if e.args else type(e).__name__}
    except MemoryError:
        return {'stage': stage, 'code': 0, 'reason': 'no memory'}
    finally:
        if s:
            s.close()
print(json.dumps(_host()))
"""


def damaged(repl: Repl, slot: str) -> list[str]:
    """The files of a slot that are not as its listing says. Needs the helpers of deploy.py."""
    return list(repl.ask(_DAMAGED % (f"{slot}/{LISTING}", f"{slot}/")))


def crashes(repl: Repl) -> dict[str, Any] | None:
    """What firmware/vrt/setup/crash.py wrote down; None when nothing can be read."""
    text = repl.ask("print(json.dumps(_text('crash.json', 9999)))")
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def wifi(repl: Repl) -> dict[str, Any]:
    """Join the Wi-Fi of the settings: `{"state": "absent"}`, or "up" with ip and rssi, or "down" with reason and seen."""
    return dict(repl.ask(_WIFI, patience_s=_NETWORK_S))


def block(repl: Repl) -> int | None:
    """Bytes of the largest free piece of the system's own heap (firmware/vrt/links/wifi.py); None where there is none."""
    found = repl.ask(_BLOCK)
    return None if found is None else int(found)


def clock(repl: Repl, server: str) -> list[int]:
    """The board's time, UTC: year to second; a clock that is not set asks `server` first (empty: nobody)."""
    return list(repl.ask(_CLOCK % server, patience_s=_NETWORK_S))


def host(repl: Repl) -> dict[str, Any]:
    """How far a connection to the host of the settings comes: stage, reason in the board's words, close code."""
    return dict(repl.ask(_HOST, patience_s=_NETWORK_S))
