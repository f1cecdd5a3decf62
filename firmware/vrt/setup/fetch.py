# How an update comes to the device: what the host offers in `ready` is noted on flash and the device starts again; early in
# that start the bundle is fetched over TLS from the host's own address and given to update.py. So all memory is free for it,
# and nothing else runs. What fails is tried again at the next offer, three times in all; what is refused is not.
import json
import os
import socket

from micropython import const

from vrt import VERSION
from vrt.setup.update import install, newer

_NOTE = "update.json"
_TRIES = const(3)
_TIMEOUT_S = const(20)
_LINES = const(64)  # of an HTTP answer's head


def wanted(offer, slots):
    # Whether the host's offer, {"version", "port"}, is worth a restart. If so it is noted.
    try:
        version, port = offer["version"], int(offer["port"])
        if not newer(version, VERSION) or slots.read()[2] == version:  # the slots' is on trial, or has failed
            return False
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    said = noted()
    tries = said["tries"] if said and said["version"] == version else 0
    if tries >= _TRIES:
        return False
    _note(version, port, tries, True)
    return True


def noted():
    # What is noted: {"version", "port", "tries", "due"}, or None.
    try:
        with open(_NOTE) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _note(version, port, tries, due=False):
    with open(_NOTE + ".new", "w") as file:
        json.dump({"version": version, "port": port, "tries": tries, "due": due}, file)
    os.rename(_NOTE + ".new", _NOTE)


def attempt(board, config, slots):
    # Takes the update that is noted. True: it is there, and is tried at the next start. Never raises.
    said = noted()
    if not said or not said["due"] or slots.read()[1] or not newer(said["version"], VERSION):
        return False
    version, port, tries = said["version"], said["port"], said["tries"] + 1
    _note(version, port, tries)  # first: what cuts the power may be the update
    board.event("update", state="fetch", version=version)
    try:
        with open(config["update_key"]) as file:
            key = file.read().strip()
        sock = _ask(board, config, port)
        try:
            version = install(_Body(board, sock).read, key, board.NAME, VERSION, slots)
        finally:
            sock.close()
    except (ValueError, KeyError, TypeError) as error:  # it will be no better next time
        _note(version, port, _TRIES)
        board.event("error", code="UPDATE", message=f"refused: {error}")
        return False
    except (OSError, MemoryError) as error:
        board.event("error", code="UPDATE", message=f"failed, try {tries} of {_TRIES}: {error}")
        return False
    board.event("update", state="installed", version=version)
    return True


make = attempt  # for vrt.use


def _ask(board, config, port):
    # The answer to our request, as a stream at the beginning of its body. Raises OSError, ValueError.
    from vrt.links.url import address  # noqa: PLC0415  (forgets itself)

    ca = None
    if config["ca"]:
        with open(config["ca"], "rb") as file:
            ca = file.read()
    tls, host, _, _, _ = address(config["url"], ca)
    if not tls:
        raise ValueError("an update needs a wss:// url: the token goes with the request")
    sock = socket.socket()
    try:
        sock.settimeout(_TIMEOUT_S)
        sock.connect(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)[0][-1])
        sock = tls.wrap_socket(sock, server_hostname=host)
        sock.write(
            f"GET /update/{board.NAME} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {config['token']}\r\n\r\n".encode()
        )
        status = sock.readline().split()
        for _ in range(_LINES):
            if sock.readline() in (b"\r\n", b""):
                break
    except (OSError, ValueError, MemoryError):
        sock.close()
        raise
    if len(status) < 2 or status[1] != b"200":
        sock.close()
        raise OSError("the host answered " + (status[1].decode() if len(status) > 1 else "nothing"))
    return sock


class _Body:
    def __init__(self, board, sock):
        self.board = board
        self.sock = sock

    def read(self, n):
        # Exactly n bytes. Raises OSError when there are fewer.
        self.board.wait(None, 0)  # feeds the watchdog
        data = self.sock.read(n)
        if not data or len(data) < n:
            raise OSError("the host closed the connection")
        return data
