# How a connection on a serial line begins (docs/serial.md, "Opening"): needed then, and forgotten.
import json

import vrt

_VERSION = 1
_LEAST_WINDOW = 64
_MOST_WINDOW = 0x100000


def question(nonce, window):
    # The payload of O. window: bytes that our side takes while nobody reads.
    return b'{"v":%d,"nonce":"%s","window":%d}' % (_VERSION, nonce, window)


def answer(payload, nonce):
    # The host's window, of the payload of Y; 0 when it answers another question, or says what we do not understand.
    vrt.forget("vrt.links.opening")
    try:
        said = json.loads(payload)
        window = said["window"]
        if said["v"] != _VERSION or said["nonce"].encode() != nonce or window < _LEAST_WINDOW:
            return 0
        return min(window + 0, _MOST_WINDOW)
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0
