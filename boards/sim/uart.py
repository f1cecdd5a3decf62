# The serial port of the simulated board, which its console shares, as on most boards: standard input and output, a terminal that is
# raw and from which a read never waits.
import sys


class Port:
    window = 4096  # what the terminal keeps while nobody reads
    polled = sys.stdin  # knows when there is something to read

    def __init__(self):
        self._in = sys.stdin.buffer
        self._out = sys.stdout.buffer
        self._stops = True
        self._spare = bytearray(1)

    def open(self):
        return self

    def interrupt(self, on):
        # Whether Ctrl-C stops the program: micropython.kbd_intr, which on this port knows nothing of a terminal.
        self._stops = on

    def readinto(self, buf, n):
        if not self._stops:
            return self._in.readinto(buf, n)
        n = self._in.readinto(buf, 1)  # what comes behind a Ctrl-C is for the REPL
        if n and buf[0] == 3:
            raise KeyboardInterrupt
        return n

    def write(self, buf, at, n):
        return self._out.write(buf, at, n)

    def close(self):
        self._stops = True

    def drain(self):
        # Nobody wants what comes, but for a Ctrl-C.
        while self.readinto(self._spare, len(self._spare)):
            pass


make = Port
