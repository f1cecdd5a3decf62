"""The simulated board: small MicroPython programs on the real `boards/sim/board.py`, with the real hardware behind it."""

import asyncio
import socket

import numpy as np
import pytest
from vrt_host.errors import UsageError, VrtError
from vrt_host.sim.board import SimBoard, find_micropython

DEADLINE_S = 60
HEAD = """
import time
import board
from array import array
def until(condition, ms=10000):
    end = time.ticks_add(time.ticks_ms(), ms)
    while not condition():
        if time.ticks_diff(end, time.ticks_ms()) < 0:
            raise RuntimeError("timeout")
        board.wait(None, 10)
"""


@pytest.fixture
def program(tmp_path):
    """Makes a board of a program's text."""

    def make(text, **options):
        path = tmp_path / "program.py"
        path.write_text(HEAD + text)
        return SimBoard(url="ws://127.0.0.1:1/", program=path, **options)

    return make


async def events(board, last):
    """The events of a board up to one of that name."""
    seen = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in board.events():
            seen.append(event)
            if event["event"] == last:
                return seen
    raise AssertionError(f"no {last!r} in {seen}")


async def value(board, name):
    """The `value` of the board's event of that name."""
    return (await events(board, name))[-1]["value"]


IDLE = "\nboard.event('ready', value=0)\nwhile True:\n    board.wait(None, 1000)\n"


def test_find_micropython_is_a_program(micropython_binary):
    assert str(find_micropython()) == micropython_binary


async def test_board_boots_with_its_outputs_at_their_safe_level(program):
    async with program("board.output('light').value(1)" + IDLE) as board:
        seen = await events(board, "ready")
        assert [(e["name"], e["value"]) for e in seen if e["event"] == "output"] == [
            ("front_lock", 0),
            ("back_lock", 0),
            ("light", 0),
            ("light", 1),
        ]
        assert board.hardware.outputs == {"front_lock": 0, "back_lock": 0, "light": 1}


async def test_board_describes_itself_by_the_ports_block_rule(program):
    async with program("board.event('d', value=board.DESCRIPTION)" + IDLE) as board:
        assert await value(board, "d") == {
            "id": "sim",
            "mic_rate": 16000,
            "mic_dma_ms": 64,
            "dac_rate": 24000,
            "dma_ms": 43,
            "duplex": "full",
        }


async def test_board_config_is_what_the_simulator_says(program):
    async with program(
        "board.event('c', value=board.config())" + IDLE,
        token="secret",
        config={"listen": "button", "id": "x"},
    ) as board:
        assert await value(board, "c") == {
            "url": "ws://127.0.0.1:1/",
            "token": "secret",
            "listen": "button",
            "duplex": "full",
            "safe_boot_ms": 0,
            "id": "x",
        }


async def test_i2s_loses_a_third_transfer_silently_and_calls_back_from_the_scheduler(program):
    text = """
i2s = board.speaker()
done = [0]
def handler(which):
    assert which is i2s
    done[0] += 1
i2s.irq(handler)
blocks = [array("h", [k] * 2000) for k in (1, 2, 3)]
assert [i2s.write(block) for block in blocks] == [4000] * 3
assert done[0] == 0
until(lambda: done[0] == 2)
assert i2s.write(bytearray(blocks[0])) == 4000
assert i2s.write(memoryview(bytearray(blocks[1]))) == 4000
until(lambda: done[0] == 4)
time.sleep_ms(200)
board.wait(None, 200)
board.event("done", value=done[0])
"""
    async with program(text + IDLE) as board:
        assert await value(board, "done") == 4
        played = board.speaker_samples
        assert [int((played == k).sum()) for k in (1, 2, 3)] == [4000, 4000, 0]


async def test_i2s_hears_the_microphone(program):
    text = """
i2s = board.microphone()
got = []
buf = array("h", bytes(640))
def handler(which):
    got.append(max(buf))
    which.readinto(buf)
i2s.irq(handler)
assert i2s.readinto(buf) == 640
board.event("open", value=0)
until(lambda: got and got[-1])
until(lambda: not got[-1])
board.event("heard", value=max(got))
"""
    async with program(text + IDLE) as board:
        await value(board, "open")
        start, end = board.say(np.arange(1, 4001, dtype=np.int16))
        assert await value(board, "heard") == 4000
        assert board.mic_samples.max() == 4000
        assert board.hardware.microphone.between(start, end)[-1] == 4000


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("board.speaker().write(bytearray(4))", "OSError"),
        ("i = board.speaker(); i.irq(print); i.deinit(); i.write(bytearray(4))", "OSError"),
        ("board.output('door')", "KeyError"),
    ],
)
async def test_board_refuses_what_it_cannot_do(program, call, error):
    with pytest.raises(VrtError, match=f"(?s)the board failed: Traceback.*{error}"):
        async with program(call) as board:
            await events(board, "exit")


async def test_i2s_opened_again_gets_no_answers_meant_for_the_old_one(program):
    text = """
calls = []
old = board.speaker()
old.irq(calls.append)
old.write(array("h", [1] * 4000))
old.deinit()
new = board.speaker()
new.irq(calls.append)
new.write(array("h", [2] * 240))
until(lambda: calls)
board.event("done", value=[call is new for call in calls])
"""
    async with program(text + IDLE) as board:
        assert await value(board, "done") == [True]


async def test_wait_wakes_for_the_link(program):
    text = """
import socket
link = socket.socket()
link.connect(socket.getaddrinfo("127.0.0.1", PORT)[0][-1])
assert board.wait(link, 20) is False
board.event("waiting", value=0)
start = time.ticks_ms()
assert board.wait(link, 30000) is True
took = time.ticks_diff(time.ticks_ms(), start)
link.close()
assert board.wait(None, 0) is False
board.event("woken", value=took)
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        text = text.replace("PORT", str(server.getsockname()[1]))
        async with program(text + IDLE) as board:
            loop = asyncio.get_running_loop()
            peer, _ = await loop.sock_accept(server)
            with peer:
                await value(board, "waiting")
                await loop.sock_sendall(peer, b"x")
                assert await value(board, "woken") < 29_000


async def test_button_is_seen(program):
    text = "until(board.button)\nboard.event('down', value=1)\nuntil(lambda: not board.button())\nboard.event('up', value=1)"
    async with program(text + IDLE) as board:
        board.hardware.press()
        await value(board, "down")
        board.hardware.press(False)
        await value(board, "up")


async def test_led_is_told_when_it_changes(program):
    text = "board.led('idle'); board.led('idle'); board.led('listening')"
    async with program(text + IDLE) as board:
        seen = await events(board, "ready")
        assert [e["state"] for e in seen if e["event"] == "led"] == ["idle", "listening"]
        assert board.hardware.led == "listening"


async def test_traceback_is_an_event_and_an_error(program):
    board = program("print('hello')\ndef f():\n    raise ValueError('no ' + 'good')\nf()")
    await board.__aenter__()
    seen = await events(board, "exit")
    assert [e["text"] for e in seen if e["event"] == "console"] == ["hello"]
    assert [e["text"].splitlines()[-1] for e in seen if e["event"] == "traceback"] == ["ValueError: no good"]
    assert (seen[-1]["code"], seen[-1]["asked"]) == (1, False)
    with pytest.raises(
        VrtError, match=r"(?s)Traceback.*program\.py.*ValueError: no good.*by itself with code 1"
    ):
        await board.__aexit__(None, None, None)


async def test_what_is_printed_keeps_its_place_among_events(program):
    text = "for n in range(50):\n    print('a', n)\n    board.event('step', value=n)\n    board.led(n % 2)\n"
    async with program(text + "print('b')" + IDLE) as board:
        seen = await events(board, "ready")
    told = [e.get("text") or e["event"] for e in seen if e["event"] in ("console", "step", "led")]
    assert told == [word for n in range(50) for word in (f"a {n}", "step", "led")] + ["b"]
    times = [e["t"] for e in seen]
    assert times == sorted(times)


async def test_board_that_dies_before_it_reaches_its_hardware_is_an_error(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import nothing_of_that_name\n")
    with pytest.raises(VrtError, match="ImportError: no module named 'nothing_of_that_name'"):
        async with SimBoard(url="ws://x/", program=path):
            pass


async def test_stop_lets_the_firmware_clean_up(program):
    text = "try:\n    board.event('ready')\n    while True:\n        board.wait(None, 1000)\nfinally:\n    print('clean')"
    async with program(text) as board:
        await events(board, "ready")
    seen = await events(board, "exit")
    assert [e["text"] for e in seen if e["event"] == "console"] == ["clean"]
    assert (seen[-1]["code"], seen[-1]["asked"]) == (0, True)


async def test_stop_ends_a_firmware_that_does_not_listen(program):
    async with program("board.event('ready')\nwhile True:\n    pass") as board:
        await events(board, "ready")
    assert (await events(board, "exit"))[-1]["code"] < 0


async def test_cut_and_boot_keep_the_flash(program):
    text = """
try:
    with open(board.storage + "boots") as file:
        n = int(file.read())
except OSError:
    n = 0
with open(board.storage + "boots", "w") as file:
    file.write(str(n + 1))
board.event("boots", value=n)
"""
    async with program(text + IDLE) as board:
        assert await value(board, "boots") == 0
        await board.cut()
        assert board.hardware.outputs == {"front_lock": 0, "back_lock": 0, "light": 0}
        await board.boot()
        assert await value(board, "boots") == 1


@pytest.mark.parametrize("heap", ["", "0k", "128", "k", "128kk", "-1k", "1.5M"])
def test_heap_that_is_no_size_is_refused(program, heap):
    with pytest.raises(UsageError, match="say a size such as 128k"):
        program("", heap=heap)


async def test_heap_is_what_was_asked_for(program):
    text = "import gc\nboard.event('heap', value=gc.mem_alloc() + gc.mem_free())"
    async with program(text + IDLE, heap="96k") as board:
        assert 88_000 < await value(board, "heap") <= 98_304


async def test_tools_of_the_user_replace_the_boards(program, tmp_path):
    tools = tmp_path / "mine.py"
    tools.write_text("WHOSE = 'mine'\n")
    async with program("import tools\nboard.event('tools', value=tools.WHOSE)" + IDLE, tools=tools) as board:
        assert await value(board, "tools") == "mine"


LOOPBACK = """
import micropython
from vrt.audio.mic import Mic
from vrt.audio.speaker import Speaker
D = board.DESCRIPTION
speaker = Speaker(
    board.speaker(), encoding=ENCODING, rate=OUT, dac_rate=D["dac_rate"],
    ring_bytes=OUT, dma_ms=D["dma_ms"], prefill_ms=200
)
mic = Mic(board.microphone(), encoding=ENCODING, rate=OUT, mic_rate=D["mic_rate"])
now = time.ticks_ms
mic.start(now())
speaker.begin("a")
def run(ms):
    end = time.ticks_add(now(), ms)
    while time.ticks_diff(end, now()) > 0:
        frame = mic.poll(now())
        if frame is not None:
            speaker.write(frame, 5, mic.n - 5)
            mic.sent()
        speaker.poll(now())
        board.wait(None, 5)
run(400)
board.event("ready", value=0)
run(200)
micropython.heap_lock()
run(1000)
micropython.heap_unlock()
run(500)
board.event("done", value=[
    mic.frames, mic.dropped, mic.overruns, mic.stalls, speaker.dropped, speaker.underruns, speaker.stalls
])
"""


async def loop_back(board):
    """(samples that left the DAC from the first loud one on, the delay in seconds, what was lost, by whom ever)."""
    await value(board, "ready")
    lost = board.hardware.adc.lost_samples
    tone = (8000 * np.sin(2 * np.pi * 500 * np.arange(16_000) / 16_000)).astype(np.int16)
    start, _ = board.say(tone)
    frames, *losses = await value(board, "done")
    assert frames > 80
    losses += [board.hardware.adc.lost_samples - lost, board.hardware.dac.starved]
    heard = board.speaker_samples
    first = int(np.flatnonzero(np.abs(heard) > 2000)[0])
    return heard[first:], board.hardware.speaker.start + first / 24_000 - start, losses


@pytest.mark.parametrize(("encoding", "rate"), [("pcmu", 8000), ("pcm16", 24000)])
async def test_audio_path_on_the_board_allocates_nothing_and_carries_a_tone(program, encoding, rate):
    text = LOOPBACK.replace("ENCODING", repr(encoding)).replace("OUT", str(rate))
    for _ in range(4):  # on a machine that is too busy for real time, again
        async with program(text + IDLE) as board:
            heard, delay, losses = await loop_back(board)
            if not any(losses):
                break
    assert losses == [0] * 8
    assert 0.2 < delay < 0.5
    piece = heard[4800 : 4800 + 12_000].astype(float)
    power = np.abs(np.fft.rfft(piece * np.hanning(len(piece)))) ** 2
    peak = int(power.argmax())
    assert peak * 24_000 / len(piece) == pytest.approx(500, abs=3)
    near = power[peak - 3 : peak + 4].sum()
    assert near > 1000 * (power.sum() - near)  # mu-law leaves 34 dB or more


async def test_hardware_keeps_time_while_the_firmware_is_busy(program):
    text = """
i2s = board.speaker()
left = [60]
sound = array("h", [1000] * 240)
def handler(which):
    if left[0]:
        left[0] -= 1
        which.write(sound)
i2s.irq(handler)
i2s.write(sound)
until(lambda: left[0] < 40)
time.sleep_ms(300)
until(lambda: not left[0])
board.wait(None, 100)
board.wait(None, 100)
"""
    async with program(text + IDLE) as board:
        await events(board, "ready")
        before = board.hardware.now
        played = board.speaker_samples
        # Every sample once, silence in between, and a second of samples a second.
        assert np.count_nonzero(played) == 61 * 240
        assert board.hardware.dac.starved >= 1
        end = board.hardware.speaker.start + len(played) / 24_000
        assert before < end < board.hardware.now + 0.011  # a block has begun that is not over
