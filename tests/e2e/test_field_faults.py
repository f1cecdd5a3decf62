"""Faults of other voice boards, as their users met them, played to the real firmware (docs/field-faults.md)."""

import asyncio
from urllib.parse import urlsplit

from vrt_host.harness.proxy import Proxy
from vrt_host.sim.board import SimBoard

DEADLINE_S = 60
LIGHT = {"call": {"tool": "light", "arguments": {"state": "on"}}}


class Watched:
    """A board's events, one after the other; `seen` counts them by name."""

    def __init__(self, board):
        self._events = board.events()
        self.seen = {}

    async def next(self, name, /, **fields):
        """The next event of that name with these fields."""
        async with asyncio.timeout(DEADLINE_S):
            async for event in self._events:
                self.seen[event["event"]] = self.seen.get(event["event"], 0) + 1
                if event["event"] == name and all(event.get(key) == value for key, value in fields.items()):
                    return event
        raise AssertionError(f"the board ended before {name}")


async def test_no_timer_closes_a_healthy_board_in_a_long_answer_or_at_rest(serve):
    url = serve(
        {"rules": [{"on": {"start": True}, "do": [{"say": {"text": "A long one.", "toneMs": 5000}}]}]},
        *("--heartbeat", "2"),
    )
    config = {"listen": "button", "ping_ms": 1000, "stats_ms": 500}
    async with SimBoard(url=url, config=config) as board:
        watched = Watched(board)
        begun = await watched.next("audio_start")
        over = await watched.next("played")
        assert over["t"] - begun["t"] > 2 * 2
        for _ in range(10):
            at_rest = await watched.next("stats")
        assert at_rest["t"] - over["t"] > 2 * 2
        assert (watched.seen["ready"], watched.seen.get("lost", 0)) == (1, 0)


async def test_uplink_that_stalls_for_3_s_while_the_microphone_runs_loses_no_session_and_no_result(serve):
    rule = {
        "on": {"start": True},
        "do": [{"waitMs": 500}, LIGHT, {"branch": {"ok": [{"say": "The light is on."}]}}],
    }
    config = {"listen": "open", "stats_ms": 500, "ping_ms": 2000}
    async with (
        Proxy("127.0.0.1", urlsplit(serve({"rules": [rule]})).port) as proxy,
        SimBoard(url=f"ws://127.0.0.1:{proxy.port}/", config=config) as board,
    ):
        watched = Watched(board)
        begun = await watched.next("ready")
        proxy.stall("up")
        await watched.next("result", name="light")
        while (await watched.next("stats"))["t"] - begun["t"] < 3:
            assert "transcript" not in watched.seen, "the stall holds nothing back"
        proxy.flow("up")
        await watched.next("transcript", text="The light is on.")
        sent = (await watched.next("stats"))["sent"]
        assert (await watched.next("stats"))["sent"] > sent
        assert (watched.seen["ready"], watched.seen.get("lost", 0)) == (1, 0)


async def test_tool_list_of_9_kib_is_taken_and_the_last_tool_works(serve, tmp_path):
    words = "word " * 45
    tools = tmp_path / "many.py"
    tools.write_text(
        "from vrt.tools import tool\n"
        + "".join(
            f'@tool("{words}", {{}})\ndef tool_{number}():\n    return {number}\n' for number in range(36)
        )
    )
    assert (
        36 * len(words) + 36 * len('{"name":"tool_10","description":"","parameters":{"type":"object"}}')
        > 9216
    )
    url = serve({"rules": [{"on": {"start": True}, "do": [{"call": {"tool": "tool_35"}}]}]})
    async with SimBoard(
        url=url, tools=tools, heap="192k"
    ) as board:  # 128k, of which 23 are free, have not the room
        result = await Watched(board).next("result", name="tool_35")
        assert result["result"]["output"] == 35
