# What a real board does beside sound: every profile on a machine that keeps a log.
import json
import os
import sys

import fake_machine
import micropython
from fake_machine import BOARDS, Reset, booted, codec_chips, described
from support import SkipTest, raises

OFFERED = (
    "microphone speaker button led output safe wait event config storage restart wlan watchdog reset_cause"
)


def profiles():
    names = []
    for name in os.listdir(BOARDS):
        try:
            if described(name)["mcu"] != "unix":
                names.append(name)
        except OSError:
            pass  # no board
    assert len(names) >= 8
    return sorted(names)


def printed(call, *args, **kwargs):
    # What a call prints, by lines. MicroPython cannot redirect: there the call runs, and nothing is returned.
    if sys.implementation.name == "micropython":
        call(*args, **kwargs)
        return None
    import contextlib  # noqa: PLC0415
    import io  # noqa: PLC0415

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        call(*args, **kwargs)
    return out.getvalue().splitlines()


def test_every_board_offers_what_the_firmware_may_call():
    for name in profiles():
        fake_machine.fresh(codec_chips())
        path = f"{BOARDS}/{name}/board.py"
        with open(path) as file:
            text = file.read()
        made = {"__file__": path, "__name__": "board"}
        exec(text, made)
        entry = described(name)
        assert made["NAME"] == made["DESCRIPTION"]["id"] == name
        assert made["DESCRIPTION"]["duplex"] == entry["duplex"]
        for offered in OFFERED.split():
            assert offered in made, offered
        assert ("serial" in made) == ("serial" in entry)
        assert ("volume" in made) == ("codec" in entry["speaker"])


def test_the_dma_is_what_the_ports_block_rule_makes_of_ibuf():
    for name in profiles():
        board, _ = booted(name, codec_chips())
        assert board.DESCRIPTION["mic_dma_ms"] == 64  # 4 blocks of 256 at 16 kHz
        assert board.DESCRIPTION["dma_ms"] == 43  # 4 blocks of 256 at 24 kHz, rounded up
    assert board._dma_ms({"rate": 16000, "ibuf": 1024}, 8) == 32  # never fewer than two


def test_outputs_take_their_safe_level_before_anything_else():
    _, machine = booted("bread-compact-s3")
    assert machine.log[0] == ("pin", 18, 0)
    assert machine.open == {}


def test_an_output_tells_what_it_does_and_returns_to_safe():
    board, machine = booted("bread-compact-s3")
    light = board.output("light")
    lines = printed(light.value, 1)
    assert light.value() == 1
    assert machine.pins[18] == 1
    if lines is not None:
        assert json.loads(lines[0]) == {"event": "output", "name": "light", "value": 1}
        assert printed(light.value, 1) == []  # no change
    printed(board.safe)
    assert light.value() == machine.pins[18] == 0


def test_held_pins_and_the_amplifier_have_their_level_at_boot():
    for name in profiles():
        entry = described(name)
        _, machine = booted(name, codec_chips())
        for held in entry.get("held", {}).values():
            assert machine.pins[held["pin"]] == held["level"]
        amplifier = entry["speaker"].get("amplifier", {})
        if "pin" in amplifier:
            assert machine.pins[amplifier["pin"]] == 1 - amplifier["on"]
        elif "expander" in amplifier:  # as a reset leaves it, it may be on
            register, bits = {0x43: (0x05, 0x6E), 0x20: (0x03, 0x01)}[amplifier["address"]]
            assert machine.chips[amplifier["address"]].registers[register] & bits == 0


def test_a_board_starts_without_its_expander():
    chips = codec_chips()
    del chips[0x20]
    board, _ = booted("waveshare-s3-audio-board", chips)
    assert board.NAME == "waveshare-s3-audio-board"


def test_the_button_is_pressed_at_its_active_level():
    for name in profiles():
        board, machine = booted(name, codec_chips())
        entry = described(name)["button"]
        assert not board.button()  # the pull keeps it open
        machine.pins[entry["pin"]] = entry["active"]
        assert board.button()
        assert machine.pulls[entry["pin"]] == fake_machine.Pin.PULL_UP


def states():
    # Those that the firmware may show, as the table of what a board offers has them.
    with open(BOARDS + "/sim/README.md") as file:
        for line in file:
            if line.startswith("| `led(state)`"):
                return line.split("|")[2].split("`")[1].split()
    raise AssertionError("boards/sim/README.md lists no states")


def shown(machine, entry):
    # The LED now, as red, green, blue, or lit or not.
    if entry["kind"] == "ws2812":
        return tuple(machine.chain.colors)
    numbers = entry["pins"] if entry["kind"] == "rgb" else [entry["pin"]]
    return tuple([machine.pins[number] == entry["active"] for number in numbers])


def decoded(log, data, clock):
    # The last frame on an APA102's two wires: the colours of its LEDs.
    bits = []
    level = 0
    for kind, number, value in [entry for entry in log if entry[0] == "pin"]:
        assert kind == "pin"
        if number == data:
            level = value
        elif number == clock and value:
            bits.append(level)
    words = []
    for i in range(0, len(bits) - 31, 32):
        word = 0
        for bit in bits[i : i + 32]:
            word = word << 1 | bit
        words.append(word)
    return words


def test_no_two_states_look_alike():
    # Whenever one begins to look.
    for name in profiles():
        entry = described(name).get("led")
        if entry is None or entry["kind"] == "apa102":
            continue
        board, machine = booted(name, codec_chips())
        seen = {}
        for state in states():
            board.led(state)
            look = []
            assert any(shown(machine, entry)) == (
                state != "off"
            )  # an error shows even when nothing runs any more
            for _ in range(16):
                board.wait(None, 125)
                look.append(shown(machine, entry))
                machine.log.clear()
            key = min([json.dumps(look[i:] + look[:i]) for i in range(16)])
            assert key not in seen, f"{name}: {state} looks like {seen.get(key)}"
            seen[key] = state


def test_the_rhythm_alone_tells_every_state():
    # For whoever does not tell colours apart, on every kind of LED.
    for name in profiles():
        entry = described(name).get("led")
        if entry is None or entry["kind"] == "apa102":
            continue
        board, machine = booted(name, codec_chips())
        seen = {}
        for state in states():
            board.led(state)
            lit = []
            for _ in range(16):
                board.wait(None, 125)
                lit.append(any(shown(machine, entry)))
            key = min([json.dumps(lit[i:] + lit[:i]) for i in range(16)])
            assert key not in seen, f"{name}: {state} has the rhythm of {seen.get(key)}"
            seen[key] = state


def test_a_light_that_blinks_allocates_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("no heap lock here")
    board, _ = booted("bread-compact-s3")
    light = board._light
    light.show("confirm", 0)

    class Chain:
        def fill(self, color):
            pass

        def write(self):
            pass

    light.chain = Chain()
    micropython.heap_lock()
    try:
        for slot in range(32):
            light.step(125 * slot)
    finally:
        micropython.heap_unlock()


def test_apa102_gets_a_start_a_colour_for_each_led_and_an_end():
    entry = described("lilygo-t-circle-s3")["led"]
    board, machine = booted("lilygo-t-circle-s3")
    machine.log = []
    board.led("confirm")
    words = decoded(machine.log, *entry["pins"])
    assert words[0] == 0
    assert words[1 : 1 + entry["count"]] == [0xE4FF00FF] * entry["count"]  # blue, green, red
    machine.log = []
    board.led("off")
    words = decoded(machine.log, *entry["pins"])
    assert words[1 : 1 + entry["count"]] == [0xE4000000] * entry["count"]


def test_a_state_that_is_shown_is_not_written_again():
    board, machine = booted("bread-compact-esp32")
    board.led("listening")
    machine.log = []
    board.led("listening")
    board.wait(None, 100)
    assert machine.log == []


def test_an_event_is_one_line_of_json_without_secrets():
    board, _ = booted("bread-compact-s3")
    lines = printed(board.event, "link", state="open", token="abc", password="x")
    if lines is None:
        raise SkipTest("what is printed cannot be read here")
    assert len(lines) == 1
    assert json.loads(lines[0]) == {
        "event": "link",
        "state": "open",
        "token": "(hidden)",
        "password": "(hidden)",
    }


def test_wait_ends_at_its_time_or_when_the_link_has_something():
    board, machine = booted("bread-compact-s3")
    assert board.wait(None, 20) is False
    assert machine.ticks_ms() == 20
    link = object()
    assert board.wait(link, 30) is False
    assert machine.ticks_ms() == 50
    machine.readable = (link,)
    assert board.wait(link, 30) is True
    assert machine.ticks_ms() == 50
    assert board.wait(link, 0) is True
    machine.readable = ()
    assert board.wait(link, 0) is False
    assert machine.ticks_ms() == 50


def test_wait_feeds_the_watchdog_once_it_runs():
    board, machine = booted("bread-compact-s3")
    board.wait(None, 1)
    assert machine.dog is None
    board.watchdog(8000)
    assert machine.dog.timeout == 8000
    board.wait(None, 1)
    board.wait(None, 1)
    assert machine.dog.fed == 2


def test_restart_resets_the_chip():
    board, _ = booted("bread-compact-s3")
    raises(Reset, board.restart)


def caused(cause, kept):
    # What the next start hears of its cause, with that in the memory; twice, since it is asked twice.
    board, machine = booted("bread-compact-s3")
    machine.cause, machine.kept = cause, kept
    word = board.reset_cause()
    assert board.reset_cause() == word
    return word


def test_the_cause_of_a_start_is_in_words():
    made = fake_machine.Machine
    for cause, word in (
        (made.PWRON_RESET, "power"),
        (made.HARD_RESET, "reset"),
        (made.SOFT_RESET, "soft"),
        (99, "unknown"),
    ):
        assert caused(cause, b"") == word


def kept_by(*acts):
    # What the memory holds after a start that goes on so.
    board, machine = booted("bread-compact-s3")
    board.reset_cause()
    for act in acts:
        act(board)
    return machine.kept


def test_a_reset_that_the_firmware_did_not_want_is_told_from_one_that_it_did():
    # The chip says "reset" of both machine.reset() and a fault of the system, and "watchdog" also of a board left at its prompt.
    def run(board):
        board.watchdog(30_000)
        board.wait(None, 1)

    def safe(board):
        printed(board.safe)

    def end(board):
        safe(board)
        board.watchdog(3_600_000)

    def restart(board):
        raises(Reset, board.restart)

    made = fake_machine.Machine
    for cause in (made.HARD_RESET, made.WDT_RESET):
        # In the start; while it runs; also after a rest.
        for acts in ((), (run,), (safe, run)):
            assert caused(cause, kept_by(*acts)) == "watchdog"
        for acts in ((restart,), (safe,), (run, restart), (run, end)):
            assert caused(cause, kept_by(*acts)) == "reset"
    assert caused(made.SOFT_RESET, kept_by(run)) == "soft"
    assert caused(made.PWRON_RESET, kept_by(run)) == "power"


def test_a_uart_is_a_stream_that_does_not_wait():
    board, machine = booted("bread-compact-esp32")
    assert not hasattr(board, "serial")
    import espserial  # noqa: PLC0415

    stream = espserial.stream({"kind": "uart", "unit": 1, "tx": 22, "rx": 23})
    uart = machine.uart
    assert (uart.unit, uart.baudrate, uart.pins) == (1, 921600, (22, 23))
    buf = bytearray(8)
    assert stream.readinto(buf, 8) is None
    assert stream.ioctl(3, 1) == 0
    uart.waiting.extend(b"abc")
    assert stream.ioctl(3, 5) == 5
    assert stream.readinto(buf, 2) == 2
    assert buf[:2] == b"ab"
    assert stream.write(b"0123456", 2, 3) == 3
    assert uart.sent == b"234"
    stream.close()
    assert uart.closed


class Console:
    # Standard input and output, and the poll of them.
    def __init__(self):
        self.waiting = bytearray()
        self.sent = bytearray()
        self.buffer = self
        self.thing = (None, 1)
        self.found = ()
        self.none = ()
        self.key = None

    def readinto(self, buf, n):
        assert n == 1, "several bytes would be waited for"
        buf[0] = self.waiting[0]
        self.waiting = self.waiting[1:]

    def write(self, buf, start, n):
        self.sent.extend(buf[start : start + n])
        return n

    def register(self, *_):
        self.found = (self.thing,)

    def unregister(self, thing):
        self.found = ()

    def ipoll(self, ms):
        assert ms == 0
        return self.found if self.waiting else self.none

    def kbd_intr(self, key):
        self.key = key


class Modules:
    # select, sys and micropython, as far as the port of the console wants them.
    def __init__(self, console):
        self.stdin = self.stdout = console
        self.poll = lambda: console
        self.kbd_intr = console.kbd_intr


def console():
    # The board's console port, and what is behind it.
    board = booted("bread-compact-s3")[0]
    import espserial  # noqa: PLC0415

    behind = Console()
    espserial.select = espserial.sys = espserial.micropython = Modules(behind)
    return board.serial(), behind


def test_the_console_gives_what_there_is_and_no_more():
    stream, behind = console()
    buf = bytearray(8)
    assert stream.readinto(buf, 8) is None
    assert stream.ioctl(3, 1) == 0
    behind.waiting.extend(b"hello")
    assert stream.ioctl(3, 5) == 5
    assert stream.readinto(buf, 3) == 3
    assert stream.readinto(buf, 8) == 2
    assert buf[:3] == b"lol"
    assert stream.write(b"abcdef", 1, 3) == 3
    assert behind.sent == b"bcd"
    assert 0 < stream.window <= 260


def test_ctrl_c_is_off_only_while_the_link_says_so():
    stream, behind = console()
    stream.interrupt(False)
    assert behind.key == -1
    stream.close()
    assert behind.key == 3
    assert behind.found == ()


def test_reading_the_console_allocates_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("no heap lock here")
    stream, behind = console()
    behind.readinto = None
    buf = bytearray(8)
    left = bytearray((3,))

    class Source:
        def readinto(self, one, n):
            left[0] -= 1

    class Ready:
        found = ((None, 1),)

        def ipoll(self, ms):
            return self.found if left[0] else ()

    stream.source, stream.ready = Source(), Ready()
    micropython.heap_lock()
    try:
        n = stream.readinto(buf, 8)
        none = stream.readinto(buf, 8)
    finally:
        micropython.heap_unlock()
    assert n == 3
    assert none is None
