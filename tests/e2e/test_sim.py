"""`vrt sim` against a real `vrt serve`: real firmware, real sockets, real time."""

import json
import os
import signal
import socket
import subprocess
import textwrap

import numpy as np
import pytest
from vrt_host.sim import wav

SENTENCE = {"audio": {"voicedMs": 300, "silenceMs": 300}}

UNLOCK = {
    "rules": [
        {
            "on": SENTENCE,
            "do": [
                {"call": {"tool": "lock", "arguments": {"door": "front", "state": "unlocked"}}},
                {"say": {"text": "Hold the button.", "toneMs": 600}},
                {
                    "branch": {
                        "ok": [{"say": {"text": "It is open.", "toneMs": 500}}],
                        "REJECTED": [{"say": {"text": "It stays shut.", "toneMs": 500}}],
                    }
                },
            ],
        }
    ]
}


def events_of(lines):
    return [json.loads(line) for line in lines]


def named(events, name):
    return [event for event in events if event["event"] == name]


def test_sim_opens_a_lock_that_the_button_confirms(serve, vrt, voice, tmp_path):
    out = tmp_path / "both.wav"
    code, lines, errors = vrt(
        "sim", "--url", serve(UNLOCK), "--wav", str(voice), "--press", "auto", "--out", str(out)
    )
    told = "\n".join(lines)
    assert (code, errors) == (0, "")
    order = [
        "connected",
        "plays voice.wav",
        "lock(door=front, state=unlocked)",
        "asks for the button",
        "front lock: unlocked",
        "It is open.",
    ]
    places = [told.index(words) for words in order]
    assert places == sorted(places)

    mono, rate = wav.decode(out.read_bytes())
    assert rate == 24_000
    both = np.frombuffer(out.read_bytes()[44:], "<i2").reshape(-1, 2)
    assert len(both) == len(mono)
    user, speaker = (np.flatnonzero(np.abs(both[:, side]) > 1_000) / rate for side in (0, 1))
    assert 0.6 < user[-1] - user[0] < 0.8  # the sentence, and nothing else
    assert speaker[0] > user[-1] + 0.25  # the agent waits for silence first
    assert speaker[-1] - speaker[0] > 1.0  # the question and the answer


def test_sim_tells_every_event_as_json_until_one(serve, vrt, voice):
    code, lines, errors = vrt(
        "sim",
        "--url",
        serve(UNLOCK),
        "--wav",
        f"{voice}@0.5",
        "--press",
        "1@0.3",
        "--json",
        "--until",
        "result",
    )
    events = events_of(lines)
    assert (code, errors) == (0, "")
    assert all({"t", "source", "event"} <= event.keys() for event in events)
    assert [event["down"] for event in named(events, "button")] == [True, False]
    result = named(events, "result")[0]
    assert (result["ok"], result["code"]) == (False, "REJECTED")
    assert not [event for event in named(events, "output") if event["value"]]
    said = named(events, "says")[0]
    ready = named(events, "ready")[0]
    assert 0.45 < said["t"] - ready["t"] < 1.5


def test_sim_says_one_sentence_after_the_answer_to_the_other(serve, vrt, voice):
    script = {"rules": [{"on": SENTENCE, "do": [{"say": {"text": "Yes.", "toneMs": 800}}]}]}
    code, lines, _ = vrt("sim", "--url", serve(script), "--wav", str(voice), "--wav", str(voice), "--json")
    events = events_of(lines)
    assert code == 0
    first, second = named(events, "says")
    played = [event["t"] for event in named(events, "played")]
    assert len(played) == 2
    assert first["end"] + 0.8 < played[0] < second["t"]
    assert second["end"] + 0.8 < played[1]


def test_sim_interrupts_an_answer_with_a_timed_sentence(serve, vrt, voice):
    script = {
        "rules": [{"on": SENTENCE, "times": 1, "do": [{"say": {"text": "A long answer.", "toneMs": 6000}}]}]
    }
    code, lines, _ = vrt(
        "sim",
        "--url",
        serve(script),
        "--wav",
        str(voice),
        "--wav",
        f"{voice}@2.5",
        "--json",
        "--until",
        "playback",
    )
    events = events_of(lines)
    assert code == 0
    assert named(events, "interrupt")[0]["reason"] == "speech"
    assert 500 < named(events, "playback")[0]["played_ms"] < 3_000


def test_sim_runs_a_users_own_tool(serve, vrt, voice, tmp_path):
    tools = tmp_path / "garden.py"
    tools.write_text(
        textwrap.dedent("""
        from vrt.tools import tool

        @tool("Water a plant.", {"plant": {"type": "string"}, "ml": {"type": "integer", "minimum": 10, "maximum": 500}})
        def water(plant, ml):
            yield 100
            return {"plant": plant, "poured": ml}
        """)
    )
    script = {
        "rules": [
            {
                "on": SENTENCE,
                "do": [
                    {"call": {"tool": "water", "arguments": {"plant": "fern", "ml": 250}}},
                    {"branch": {"ok": [{"say": "Poured."}], "otherwise": [{"say": "Dry."}]}},
                    {"call": {"tool": "water", "arguments": {"plant": "fern", "ml": "a lot"}}},
                    {"branch": {"INVALID": [{"say": "How much?"}], "otherwise": [{"say": "Wet."}]}},
                    {"call": {"tool": "lock", "arguments": {"door": "front", "state": "unlocked"}}},
                    {"branch": {"FAILED": [{"say": "There is no lock."}], "otherwise": [{"say": "Open."}]}},
                ],
            }
        ]
    }
    code, lines, errors = vrt(
        "sim", "--url", serve(script), "--wav", str(voice), "--tools", str(tools), "--json"
    )
    events = events_of(lines)
    assert (code, errors) == (0, "")
    assert [event["result"].get("output") for event in named(events, "result")] == [
        {"plant": "fern", "poured": 250}
    ]
    assert [event["text"] for event in named(events, "transcript")] == [
        "Poured.",
        "How much?",
        "There is no lock.",
    ]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ('effect="sometimes"', "tool f has effect 'sometimes'"),
        (
            'confirm="voice"',
            "tool f has confirm='voice', which the configuration forbids; --set voice_confirm=true",
        ),
    ],
)
def test_sim_ends_in_one_line_when_the_tools_cannot_be_declared(vrt, tmp_path, wrong, says):
    tools = tmp_path / "bad.py"
    tools.write_text(f'from vrt.tools import tool\n\n@tool("x", {wrong})\ndef f():\n    pass\n')
    code, _, errors = vrt("sim", "--url", "ws://127.0.0.1:1/", "--tools", str(tools))
    assert code == 2
    assert errors.startswith(f"vrt sim: the board cannot use what it was given: {says}")
    assert errors.count("\n") == 1


def test_sim_needs_the_token_that_the_host_wants(serve, vrt, voice, tmp_path):
    tokens = tmp_path / "tokens.json"
    code, lines, _ = vrt("token", "add", "kitchen", "--tokens", str(tokens))
    assert code == 0
    url = serve(UNLOCK, "--tokens", str(tokens))
    code, _, errors = vrt("sim", "--url", url, "--wav", str(voice), VRT_TOKEN="wrong")
    assert code == 1
    assert "UNAUTHORIZED" in errors
    assert errors.count("\n") == 1
    code, _, errors = vrt("sim", "--url", url, "--wav", str(voice), "--until", "call", VRT_TOKEN=lines[0])
    assert (code, errors) == (0, "")


def test_sim_ends_when_its_token_is_revoked_in_the_midst(serve, vrt, command, tmp_path):
    tokens = str(tmp_path / "tokens.json")
    _, lines, _ = vrt("token", "add", "kitchen", "--tokens", tokens)
    words = ["sim", "--url", serve(UNLOCK, "--tokens", tokens), "--until", "result"]
    with subprocess.Popen(
        [*command, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "VRT_TOKEN": lines[0]},
    ) as process:
        assert any("connected" in line for line in process.stdout)
        vrt("token", "revoke", "kitchen", "--tokens", tokens)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == "vrt sim: the board gave up: UNAUTHORIZED, a valid token is needed\n"


def test_sim_says_when_the_awaited_event_did_not_come(serve, vrt, voice):
    code, _, errors = vrt(
        "sim", "--url", serve(UNLOCK), "--wav", str(voice), "--until", "interrupt", "--until", "3.5"
    )
    assert code == 1
    assert errors == "vrt sim: there was no event interrupt within 3.5 s\n"


def test_sim_stops_at_a_time(serve, vrt):
    code, lines, errors = vrt("sim", "--url", serve(UNLOCK), "--until", "1.5", "--json")
    assert (code, errors) == (0, "")
    assert 1.4 < events_of(lines)[-1]["t"] < 4


def test_sim_counts_sentences_without_an_answer(serve, vrt, voice):
    code, _, errors = vrt("sim", "--url", serve({"rules": []}), "--wav", str(voice))
    assert code == 1
    assert errors == "vrt sim: 1 of 1 utterances got no answer\n"


def test_sim_ends_though_the_echo_of_an_open_microphone_never_does(serve, vrt, voice):
    code, lines, errors = vrt("sim", "--url", serve(None, "--agent", "echo"), "--wav", str(voice))
    assert (code, errors) == (0, "")
    assert [line for line in lines if "the answer stays open" in line] == [lines[-1]]


def test_sim_says_at_once_that_nobody_answers_and_connects_when_somebody_does(serve, command, voice):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["sim", "--url", f"ws://127.0.0.1:{port}/", "--wav", str(voice), "--until", "call"]
    with subprocess.Popen(
        [*command, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    ) as process:
        for line in process.stdout:
            if "nobody answers" in line:
                break
        assert f"`vrt serve --port {port}`" in line
        assert "keeps trying" in line
        serve(UNLOCK, "--port", str(port))
        lines, errors = process.communicate(timeout=40)
    assert (process.returncode, errors) == (0, "")
    assert "connected, a new session" in lines
    assert "nobody answers" not in lines


def test_sim_ends_in_good_order_on_ctrl_c(serve, command):
    words = ["sim", "--url", serve(UNLOCK), "--json"]
    with subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        for line in process.stdout:
            if json.loads(line)["event"] == "ready":
                break
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everything that was started
        lines, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    exits = named(events_of(lines.splitlines()), "exit")
    assert [event["asked"] for event in exits] == [True]


@pytest.mark.parametrize("form", [["--json"], []])
def test_sim_ends_when_nobody_reads_its_events(serve, command, voice, form):
    words = ["sim", "--url", serve(UNLOCK), "--wav", f"{voice}@0", "--wav", f"{voice}@4", *form]
    with subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
