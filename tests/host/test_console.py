"""sim/console.py, with processes of this Python; tests/host/test_sim_board.py has it with a board."""

import asyncio
import sys

import pytest
from vrt_host.sim.console import Console

DEADLINE_S = 30


async def start(code, told):
    _, console = await asyncio.get_running_loop().subprocess_exec(
        lambda: Console(told), sys.executable, "-c", code, stdin=asyncio.subprocess.DEVNULL, stderr=None
    )
    return console


async def lines_of(code):
    lines = []
    console = await start(code, lines.append)
    async with asyncio.timeout(DEADLINE_S):
        return lines, await console.ended


async def test_console_tells_lines_and_the_exit_code():
    code = "import sys; print('a\\r'); print(); sys.stdout.buffer.write(b'b\\xff\\nc'); sys.exit(3)"
    assert await lines_of(code) == (["a", "", "b\ufffd", "c"], 3)


@pytest.mark.parametrize("end", ["\\n", ""])
async def test_console_keeps_no_endless_line(end):
    code = f"print('x' * 65536); print('y' * 3_000_000, end='{end}'); print('z' if '{end}' else '', end='')"
    lines, _ = await lines_of(code)
    assert lines == ["x" * 65536, "(a line too long to show)", *(["z"] if end else [])]


async def test_console_tells_nothing_behind_a_mark_before_it_is_passed():
    lines = []
    code = "print('a\\nb\x1e1\\nc\\n\x1e\x1ed', flush=True); import time; time.sleep(60)"
    console = await start(code, lambda line: (lines.append(line), console.drain()))
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not lines:
                await asyncio.sleep(0)
                console.drain()
        assert lines == ["a"]
        for after in (["a", "b1", "c"], ["a", "b1", "c"], ["a", "b1", "c", "d"]):
            console.passed()
            assert lines == after
    finally:
        console.kill()
        await console.ended
    console.kill()
    assert await console.ended < 1


async def test_console_waits_for_no_mark_at_the_end():
    assert await lines_of("print('a\\n\x1eb\x1ec')") == (["a", "bc"], 0)
