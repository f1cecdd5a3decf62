"""Improv on the console that MicroPython has, where a packet holds the byte of Ctrl-C."""

import os
import pty
import select
import subprocess
import time
import tty
from pathlib import Path

FIRMWARE = Path(__file__).resolve().parents[2] / "firmware"
DEADLINE_S = 30
CURRENT = b"IMPROV\x01\x03\x02\x02\x00\xe5"
READY = b"IMPROV\x01\x01\x01\x02\xe2"

PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
from vrt.setup.improv import Improv
from vrt.setup.onboard import Console

console = Console()
improv = Improv(console.write, ("vRT Edge", "1", "unix/sim", "sim"), lambda: ())
print("listening")
while True:
    byte = console.read()
    if byte is None:
        time.sleep_ms(2)
    elif not improv.feed(byte) and byte == 3:
        break
console.close()
print("stopped")
"""


def test_console_takes_packets_and_knows_ctrl_c(micropython_binary):
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # before it starts, so that no byte is eaten
    process = subprocess.Popen(
        [micropython_binary, "-c", PROGRAM, FIRMWARE], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    until = time.monotonic() + DEADLINE_S

    def hear(what):
        nonlocal said
        while what not in said:
            left = until - time.monotonic()
            assert left > 0, said
            if select.select([ours], [], [], left)[0]:
                said += os.read(ours, 4096)
        said = said.partition(what)[2]

    try:
        hear(b"listening")
        os.write(ours, b"ets Jun  8 2016\r\n" + CURRENT)
        hear(b"\n" + READY + b"\n")
        for byte in CURRENT:
            os.write(ours, bytes([byte]))
        hear(READY)
        os.write(ours, b"\r\x03")
        hear(b"stopped")
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
