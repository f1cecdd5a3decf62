# Answers the cases of an Autobahn fuzzing server with the firmware's WebSocket link, on MicroPython:
#   micropython -X heapsize=80m tools/autobahn_client.py ws://127.0.0.1:9001 AGENT
# Echoes every message. Prints one line a case with the close; exits with 1 when the server does not do its
# part.
# mypy: ignore-errors
import select
import sys
import time

_here = sys.path[0] or "."
sys.path.insert(0, _here + "/../firmware")

from vrt.links import AUDIO, CLOSED, OPEN, TEXT  # noqa: E402
from vrt.links.ws import WebSocketLink  # noqa: E402

_MESSAGE_MAX = 16 * 1024 * 1024  # the largest of the suite
_CASE_MS = 120000


class Client:
    def __init__(self, base):
        self.base = base
        self.link = WebSocketLink(base, _MESSAGE_MAX, _MESSAGE_MAX, chunk=16384)

    def run(self, path):
        # One connection from start to end; returns the last text.
        link = self.link
        tls, host, port, _, header = link.address
        link.address = tls, host, port, path, header
        started = time.ticks_ms()
        link.open(started)
        last = opened = None
        while True:
            now = time.ticks_ms()
            event = link.poll(now)
            opened = opened or event == OPEN
            if event == CLOSED:
                if not opened:
                    raise SystemExit(path + ": " + link.close_reason)
                return last
            if time.ticks_diff(now, started) > _CASE_MS:
                raise SystemExit("no end of " + path)
            if event in (TEXT, AUDIO):
                if event == TEXT and link.n < 100:
                    last = bytes(link.rx[: link.n])
                self.echo(link.send_text if event == TEXT else link.send_audio)
            elif not event:
                self.wait(select.POLLIN)

    def echo(self, send):
        # The message stays in rx because nothing is read while its answer waits for the frame before it.
        while not send(self.link.rx, self.link.n):
            if not self.link.sock:
                return
            self.wait(select.POLLOUT)

    def wait(self, events):
        poller = select.poll()
        poller.register(self.link.sock, events)
        poller.poll(20)


def main():
    base, agent = sys.argv[1:]
    client = Client(base)
    count = int(client.run("/getCaseCount"))
    for case in range(1, count + 1):
        client.run(f"/runCase?case={case}&agent={agent}")
        print(case, client.link.close_code, client.link.close_reason)
    client.run("/updateReports?agent=" + agent)


main()
