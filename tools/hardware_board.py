# What tools/hardware_test.py runs on a board, part by part, at its prompt: each function answers with a line of JSON. The board's
# own board.py does the work, as the firmware would use it.
# mypy: ignore-errors
# ruff: noqa: PLC0415, PLR1730, SIM105  (what a part needs is imported there; a call costs; no contextlib)
import gc
import json
import math
import sys
import time
from array import array

try:
    import slots

    sys.path.insert(0, slots.read()[0])
except ImportError:
    pass  # a board without slots has everything at the root

import board

_CHUNK_MS = 20


def answer(**fields):
    print(json.dumps(fields))


def facts():
    gc.collect()
    made = {
        "board": board.NAME,
        "micropython": ".".join([str(part) for part in sys.implementation.version[:3]]),
    }
    made["machine"] = sys.implementation._machine
    made["heap_free"] = gc.mem_free()
    made["heap"] = gc.mem_free() + gc.mem_alloc()
    try:
        import esp32

        made["largest_idf_block"] = max([region[2] for region in esp32.idf_heap_info(esp32.HEAP_DATA)])
    except ImportError:
        pass
    answer(**made)


class Transfer:
    # One I2S in IRQ mode, a transfer at a time.
    def __init__(self, i2s):
        self.i2s = i2s
        self.done = True
        i2s.irq(self._done)

    def _done(self, i2s):
        self.done = True

    def wait(self, other=None):
        begun = time.ticks_ms()
        while not self.done or (other and not other.done):
            board.wait(None, 5)
            if time.ticks_diff(time.ticks_ms(), begun) > 2000:
                raise OSError("no transfer ended in 2 s: the I2S does not run")


def level(samples):
    # RMS without the mean, peak, mean, and how many equal the one before.
    n = len(samples)
    mean = sum(samples) / n
    square = peak = same = 0
    before = None
    for one in samples:
        square += (one - mean) * (one - mean)
        if abs(one) > peak:
            peak = abs(one)
        if one == before:
            same += 1
        before = one
    return math.sqrt(square / n), peak, mean, same


def part_of(samples, hz, rate):
    # RMS of that frequency in the samples (Goertzel).
    turn = 2 * math.cos(2 * math.pi * hz / rate)
    one = two = 0.0
    for sample in samples:
        one, two = sample + turn * one - two, one
    power = one * one + two * two - turn * one * two
    return math.sqrt(2 * max(power, 0)) / len(samples)


def listen(ms):
    # What the microphone hears, from 200 ms after its start on.
    mic = Transfer(board.microphone())
    rate = board.DESCRIPTION["mic_rate"]
    buf = array("h", bytes(2 * (rate * _CHUNK_MS // 1000)))
    total, loudest, most, same, mean, n = 0, 0, 0, 0, 0, 0
    try:
        for k in range((200 + ms) // _CHUNK_MS):
            mic.done = False
            mic.i2s.readinto(buf)
            mic.wait()
            if k * _CHUNK_MS >= 200:
                rms, peak, offset, equal = level(buf)
                total += rms * rms
                loudest = max(loudest, rms)
                most = max(most, peak)
                mean += offset
                same += equal
                n += 1
    finally:
        mic.i2s.deinit()
    answer(rms=math.sqrt(total / n), loudest=loudest, peak=most, mean=mean / n, same=same / (n * len(buf)))


def tone(hz, ms, amplitude, hear=False):
    # Plays a tone; with `hear` it tells what the microphone hears of it, and of the rest, and before it began.
    rate = board.DESCRIPTION["dac_rate"]
    count = rate // hz * (hz * _CHUNK_MS // 1000)  # whole periods
    wave = array("h", [int(amplitude * math.sin(2 * math.pi * hz * k / rate)) for k in range(count)])
    silence = array("h", bytes(2 * count))
    out = Transfer(board.speaker())
    mic = Transfer(board.microphone()) if hear else None
    listening = board.DESCRIPTION["mic_rate"]
    buf = array("h", bytes(2 * (listening * _CHUNK_MS // 1000))) if hear else None
    quiet, during = [], []
    try:
        for playing in (False, True):
            begun = time.ticks_ms()
            while time.ticks_diff(time.ticks_ms(), begun) < ms:
                if out.done:
                    out.done = False
                    out.i2s.write(wave if playing else silence)
                if not mic:
                    out.wait()
                elif mic.done:
                    if time.ticks_diff(time.ticks_ms(), begun) > 300:
                        (during if playing else quiet).append(part_of(buf, hz, listening))
                    mic.done = False
                    mic.i2s.readinto(buf)
                else:
                    board.wait(None, 5)
    finally:
        out.i2s.deinit()
        if mic:
            mic.i2s.deinit()
    if hear:
        answer(before=sum(quiet) / len(quiet), during=sum(during) / len(during))
    else:
        answer(played=ms)


def button(ms):
    # What is seen of it once it is up: up, pressed, let go, within the time.
    begun = time.ticks_ms()
    seen = []
    while time.ticks_diff(time.ticks_ms(), begun) < ms and len(seen) < 3:
        board.wait(None, 30)
        down = board.button()
        if down != (seen[-1] if seen else True):
            seen.append(down)
    answer(seen=seen)


def led(state, ms):
    board.led(state)
    begun = time.ticks_ms()
    while time.ticks_diff(time.ticks_ms(), begun) < ms:
        board.wait(None, 20)
    answer(state=state)


def wifi(ms):
    # Joins the network of the configuration.
    config = board.config()
    lan = board.wlan()
    lan.active(True)
    lan.disconnect()
    begun = time.ticks_ms()
    lan.connect(config["wifi_ssid"], config.get("wifi_password", ""))
    while not lan.isconnected() and time.ticks_diff(time.ticks_ms(), begun) < ms:
        time.sleep_ms(50)
    made = {"joined": lan.isconnected(), "ms": time.ticks_diff(time.ticks_ms(), begun)}
    try:
        made["rssi"] = lan.status("rssi")
    except (OSError, ValueError):
        pass
    answer(**made)
