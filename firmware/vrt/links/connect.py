# From an address to an open WebSocket: whatever a link needs only until it is open, or once it is over. ws.py imports
# it then; forget() takes it and what it imports out of memory again.
import os
import select
import socket
import time
from errno import ECONNREFUSED, ECONNRESET, EHOSTUNREACH, EINPROGRESS, ENOMEM, ETIMEDOUT

from micropython import const

import vrt
from vrt.links.upgrade import read, request

_UNTRUSTED = const(-0x2700)  # MBEDTLS_ERR_X509_CERT_VERIFY_FAILED


def forget():
    vrt.forget("vrt.links.connect", "vrt.links.upgrade")


def connect(link):
    # A generator that connects link.sock to link.address and starts the link's WebSocket. Yields None while it
    # waits, and at the end why it failed, for people, or "". Only its first step blocks, to look up the name.
    # Raises what sockets and TLS raise, for explain().
    tls, host, port, path, header = link.address
    reason = yield from _dial(link, host, port)
    if not reason:
        if tls:
            link.sock = vrt.use("vrt.links.tls").wrap(tls, link.sock, host)
            vrt.forget("vrt.links.tls")
        entropy = os.urandom(20)
        reason = yield from _upgrade(link, *request(header, path, entropy[:16]))
    if not reason:
        link.start(entropy[16:])
        forget()
    yield reason


def _dial(link, host, port):
    # To the first address that answers.
    reason = "dns"
    try:
        addresses = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except OSError:
        addresses = ()
    for entry in addresses:
        try:
            link.sock = sock = _socket(entry)
        except OSError as error:
            reason = explain(error)
            continue
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        ready = None
        while not ready:
            yield
            ready = poller.poll(0)
        if not ready[0][1] & (select.POLLERR | select.POLLHUP):
            return ""
        reason = "refused"
        try:
            sock.readinto(link.chunk, 1)  # raises what connect could not
        except OSError as error:
            reason = explain(error)
        link.sock = None
        sock.close()
    return reason


def _socket(entry):
    # On its way to an address of getaddrinfo. Raises OSError.
    family, kind, protocol, _, address = entry
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY
        sock.connect(address)
    except OSError as error:
        if error.errno != EINPROGRESS:
            sock.close()
            raise
    return sock


def _upgrade(link, head, key):
    sock = link.sock
    n = 0
    while n < len(head):
        done = sock.write(head, n, len(head) - n)
        n += done or 0
        if not done:
            yield
    # Byte by byte, so that nothing is read of what follows the answer.
    n = 0
    reason = None
    while reason is None:
        done = sock.readinto(link.chunk, 1)
        if done:
            link.rx[n] = link.chunk[0]
            n += 1
            reason = read(link.rx, n, key)
        elif done is None:
            yield
        else:
            reason = "eof"
    return reason


def explain(error):
    # What went wrong, for people.
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, ValueError) or error.errno == _UNTRUSTED:  # mbedTLS refuses the certificate
        if time.gmtime()[0] < 2025:
            return "tls: the clock is not set"
        return "tls: " + (str(error).strip() if isinstance(error, ValueError) else "not trusted")
    words = {
        ECONNREFUSED: "refused",
        ECONNRESET: "reset",
        EHOSTUNREACH: "unreachable",
        ENOMEM: "memory",
        ETIMEDOUT: "timeout",
        32: "reset",  # EPIPE, which errno does not name
        -0x7F00: "memory",  # MBEDTLS_ERR_SSL_ALLOC_FAILED
    }
    number = error.errno
    # mbedTLS numbers its errors below those of the system.
    return words.get(number) or ("tls" if number and number < -255 else f"error {number}")
