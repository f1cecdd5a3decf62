"""How well the offline recognisers hear the spoken test set: words and commands, clean, as mu-law, and with noise.

Every recording of `tests/speech`, between silences, is cut into utterances as the agents do it, and each is heard by both
recognisers. A command is right when exactly its calls come out, and wrong when something else is done. `grammar` believes the
first recogniser alone, `free` the second, and `agreement` is what the local agent does. Words are counted where a recogniser
writes freely. No clock runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from vrt_host.agents.base import Tool
from vrt_host.agents.intents import Intents, Meaning, complete
from vrt_host.agents.understood import compare
from vrt_host.sim.converters import pink_noise
from vrt_host.speech.codec import Pcmu, Samples
from vrt_host.speech.engines import Engines
from vrt_host.speech.listener import End, Listener
from vrt_host.speech.resample import resample
from vrt_host.speech.vad import RATE
from vrt_host.speech.words import normalise

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests" / "speech"
LOUDNESS = 0.1
"""RMS of the speech, full scale 1.0."""
BEFORE_S, AFTER_S = 0.8, 1.3
CONDITIONS: dict[str, tuple[bool, float | None]] = {
    "clean": (False, None),
    "mulaw": (True, None),
    "mulaw_noise20": (True, 20.0),
    "mulaw_noise10": (True, 10.0),
}
"""Name -> (as mu-law at 8 kHz, by how many dB pink noise is softer than the speech)."""
WAYS = ("grammar", "free", "agreement")


@dataclass
class Score:
    """One condition."""

    commands: int = 0
    right: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))
    wrong: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))
    """Sentences of any kind after which something was done that they do not ask for."""
    words: int = 0
    errors: int = 0
    """Words too many, too few, or others."""


def corpus_tools() -> list[Tool]:
    """The tools that the sentences are about, as a board declares them: by the firmware's own code."""
    sys.path[:0] = [str(ROOT / "tests" / "firmware" / "cpython"), str(ROOT / "firmware")]
    importlib.import_module("micropython")  # the shim: puts `const` into builtins
    declared = importlib.import_module("vrt.tools").declared
    spec = importlib.util.spec_from_file_location("corpus_tools", CORPUS / "tools.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return [
        Tool(
            one["name"],
            parameters=one.get("parameters"),
            confirm=one.get("confirm"),
            confirm_when=one.get("confirmWhen"),
            effect=one.get("effect", "reversible"),
            phrases=one["phrases"],
        )
        for one in (tool.declaration for tool in declared)
    ]


def recording(sentence: dict[str, Any], seed: int, *, mulaw: bool, noise_db: float | None) -> Samples:
    """The sentence between silences, as it is heard in a condition."""
    with wave.open(str(CORPUS / "voices" / sentence["file"])) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    first, last = (round(sentence[key] * RATE / 1000) for key in ("start_ms", "end_ms"))
    samples = samples * np.float32(LOUDNESS / np.sqrt((samples[first:last] ** 2).mean()))
    heard: Samples = np.pad(samples, (int(BEFORE_S * RATE), int(AFTER_S * RATE)))
    if noise_db is not None:
        noise = np.asarray(pink_noise(len(heard), 1000.0, seed), np.float32)
        heard += noise * np.float32(LOUDNESS * 10 ** (-noise_db / 20) / np.sqrt((noise**2).mean()))
    if mulaw:
        codec = Pcmu()
        heard = resample(codec.decode(codec.encode(resample(heard, RATE, 8000))), 8000, RATE)
    return heard


def utterances(listener: Listener, samples: Samples) -> Iterator[End]:
    """What the listener takes for utterances."""
    for at in range(0, len(samples), 320):
        for event in listener.feed(samples[at : at + 320]):
            if isinstance(event, End):
                yield event


def distance(said: Sequence[str], heard: Sequence[str]) -> int:
    """Words too many, too few, or others."""
    row = list(range(len(heard) + 1))
    for count, word in enumerate(said, 1):
        above, row = row, [count]
        for place, other in enumerate(heard, 1):
            row.append(min(above[place] + 1, row[-1] + 1, above[place - 1] + (word != other)))
    return row[-1]


def calls(meanings: Sequence[Meaning | None]) -> list[dict[str, Any]]:
    """What would be done."""
    return [
        {"name": command.tool.name, "arguments": dict(command.arguments)}
        for meaning in meanings
        if meaning is not None
        for command in meaning.commands
    ]


def score(engines: Engines, intents: Intents, sentences: Sequence[dict[str, Any]], condition: str) -> Score:
    """Hear all of them."""
    mulaw, noise_db = CONDITIONS[condition]
    made = Score()
    grammar = intents.pronounce(engines.pronouncer.sounds)
    rate = 8000 if mulaw else RATE
    sphinx = engines.grammar(grammar.jsgf, grammar.more, grammar.pronunciations, rate=rate)
    for seed, sentence in enumerate(sentences):
        found: dict[str, list[Meaning | None]] = {way: [] for way in WAYS}
        heard: list[str] = []
        listener = Listener(engines.vad(), sphinx, lambda text: intents.parse(complete(text)) is not None)
        for end in utterances(listener, recording(sentence, seed, mulaw=mulaw, noise_db=noise_db)):
            free = engines.free.transcribe(end.audio, complete(end.grammar))
            heard += normalise(free.text)
            found["grammar"].append(intents.parse(complete(end.grammar)))
            found["free"].append(intents.parse(free.text))
            known = engines.pronouncer.known
            understood = compare(intents, end.grammar, free.text, free.against, known, free.others)
            found["agreement"].append(understood.meaning)
        said = normalise(sentence["text"])
        made.words += len(said)
        made.errors += distance(said, heard)
        made.commands += bool(sentence["calls"])
        for way in WAYS:
            done = calls(found[way])
            made.right[way] += bool(sentence["calls"]) and done == sentence["calls"]
            made.wrong[way] += bool(done) and done != sentence["calls"]
    return made


def rows() -> list[dict[str, Any]]:
    """The figures (`bench.py`)."""
    sentences = json.loads((CORPUS / "corpus.json").read_text("utf-8"))
    intents = Intents(corpus_tools())
    engines = Engines()
    table = Table(
        *("condition", "words right", *(f"{way}: right, wrong" for way in WAYS)),
        title=f"{len(sentences)} sentences, {sum(bool(one['calls']) for one in sentences)} of them commands",
    )
    made: list[dict[str, Any]] = []
    try:
        for condition in CONDITIONS:
            one = score(engines, intents, sentences, condition)
            right = 100 * (1 - one.errors / one.words)
            ways = [f"{one.right[way]}, {one.wrong[way]}" for way in WAYS]
            table.add_row(condition, f"{right:.1f} %", *ways)
            made.append({"name": f"speech.{condition}.words_right", "value": right, "unit": "%"})
            for way in WAYS:
                name = f"speech.{condition}.{way}"
                made.append({"name": f"{name}_right", "value": one.right[way], "unit": f"of {one.commands}"})
                wrong: dict[str, Any] = {"name": f"{name}_wrong", "value": one.wrong[way]}
                wrong["unit"] = f"of {len(sentences)}"
                if way == "agreement":
                    wrong |= {"budget": "0", "ok": one.wrong[way] == 0}
                made.append(wrong)
    finally:
        engines.close()
    Console(width=120).print(table)
    return made


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
