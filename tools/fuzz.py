"""`make fuzz`: a million inputs for the parsers of both sides, which may answer with nothing but what they document.

    python tools/fuzz.py [--inputs 1000000] [--seed 1] [TARGET ...]

Each target (fuzz_host.py, fuzz_firmware.py) runs in a process of its own. Where atheris has a wheel it chooses inputs by the
coverage they bring; elsewhere they are mutations of the seeds. Either way half of the mutations know JSON and sequences of
steps (`mutate`). Then what was found worth keeping, and mutations of it, goes to the firmware's parsers on MicroPython, with
their machine code, and has to come out as on CPython. A finding is printed as an input in quotes; make a vector or a test of it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fuzz_target import SEPARATOR, Target

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "fuzz"
DEVICE = Path(__file__).with_name("fuzz_device.py")
MAX_BYTES = 8192
INPUT_S = 30
"""An input that takes longer is a finding."""
ON_MICROPYTHON = 0.1
"""Share of all inputs."""
BATCH = 500

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        1.0,
        0.5,
        -0.0,
        7,
        2**31,
        2**32 - 1,
        2**32,
        2**53 + 1,
        10**20,
        1e308,
        -1e-300,
    ),
    *(
        "",
        "x",
        "é€😀",
        "\ud800",
        "\udc00x",
        "x" * 256,
        "x" * 257,
        "toString",
        "__proto__",
        "FAILED",
        "idle",
        "\0",
    ),
    *([], {}, [None], {"": 0}, [[]], {"a": {"b": []}}, {"encoding": "pcmu", "sampleRate": 8000}),
)
TOKENS = (
    *(
        b"1e999",
        b"-0",
        b"01",
        b"1.0",
        b"1E2",
        b"NaN",
        b"null",
        b"true",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
    ),
    *(
        b"\\ud83d\\ude00",
        b"\\ud83d",
        b"\\u0000",
        b"\\u00e9",
        b"\\/",
        b" ",
        b"\n",
        b"\0",
        b"\xff",
        b"\xc3\xa9",
        b"\xed\xa0\x80",
    ),
    *(
        b"\xf0\x9f\x98\x80",
        b"\xef\xbb\xbf",
        b"\x82\xfe\x00\x05",
        b"\x81\x7e\x00\x02",
        b"\x88\x02\x03\xe8",
        b"\x80\x00",
        b"\x7f",
    ),
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"Upgrade: websocket\r\n",
        b"ws://",
        b"[::1]",
        b":443",
        b"%41",
        b"@",
        b"#",
        b"?token=",
        SEPARATOR,
    ),
)


class Finding(Exception):
    """A parser gave an answer that it does not document."""

    def __init__(self, name: str, data: bytes, what: str) -> None:
        super().__init__(f"{name}: {what}\n  input: {data!r}")


# --- inputs


def mutate(dice: random.Random, data: bytes, pool: Sequence[bytes], text: bool) -> bytes:
    """A changed input: often one of its steps, and where it holds JSON often a value in it."""
    parts = data.split(SEPARATOR)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        place = dice.randrange(len(parts))
        roll = dice.random()
        if roll < 0.1 and len(parts) > 1:
            parts = _shuffled(dice, parts, place)
        elif text and roll < 0.6:
            parts[place] = _changed_json(dice, parts[place])
        else:
            parts[place] = _changed_bytes(dice, parts[place], pool)
    return SEPARATOR.join(parts)[:MAX_BYTES]


def _shuffled(dice: random.Random, parts: list[bytes], place: int) -> list[bytes]:
    match dice.randrange(3):
        case 0:
            return parts[:place] + parts[place + 1 :]
        case 1:
            return [*parts[: place + 1], dice.choice(parts), *parts[place + 1 :]]
    other = dice.randrange(len(parts))
    parts[place], parts[other] = parts[other], parts[place]
    return parts


def _changed_bytes(dice: random.Random, data: bytes, pool: Sequence[bytes]) -> bytes:
    at = dice.randint(0, len(data))
    end = min(len(data), at + dice.choice((1, 1, 2, 4, 16, 64)))
    match dice.randrange(6):
        case 0:
            new = b""
        case 1:
            new, end = dice.choice(TOKENS), at
        case 2:
            new = dice.choice(TOKENS)
        case 3:
            new = data[at:end] * dice.choice((2, 3, 40))
        case 4:
            new = bytes(byte ^ 1 << dice.randrange(8) for byte in data[at:end])
        case _:
            other = dice.choice(pool)
            new, end = other[dice.randint(0, len(other)) :], len(data)
    return data[:at] + new + data[end:]


def _changed_json(dice: random.Random, data: bytes) -> bytes:
    """One value of the JSON in `data` changed, which may come behind the letter of a step."""
    begin = min((place for place in (data.find(b"{"), data.find(b"[")) if place >= 0), default=0)
    try:
        value = json.loads(data[begin:])
    except (ValueError, RecursionError):
        return _changed_bytes(dice, data, [data])
    holders = list(_holders(value))
    if not holders:
        return data[:begin] + json.dumps(dice.choice(VALUES)).encode()
    holder = dice.choice(holders)
    keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = dice.choice(keys) if keys else None
    match dice.randrange(6):
        case 0 if key is not None:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[dice.choice(("x", "", "seq", "type", "v", "epoch", "callId", "é"))] = dice.choice(VALUES)
        case 2 if isinstance(holder, list):
            holder.insert(dice.randint(0, len(holder)), dice.choice(VALUES))
        case 3 if key is not None and isinstance(holder[key], (int, float)):
            with contextlib.suppress(OverflowError):  # 0.5 and more digits than a float takes
                holder[key] += dice.choice((-1, 1, 2, 0.5, 2**32))
        case _ if key is not None:
            holder[key] = dice.choice(VALUES)
    plain = dice.random() < 0.5
    made = json.dumps(
        value, ensure_ascii=plain, separators=dice.choice(((",", ":"), (", ", ": "), (" ,\n", "\t:")))
    )
    return data[:begin] + made.encode("utf-8", "surrogatepass")


def _holders(value: Any) -> Iterator[Any]:
    """Every object and array in a value."""
    if isinstance(value, (dict, list)):
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from _holders(one)


def inputs(target: Target, count: int, seed: int, pool: Sequence[bytes]) -> Iterator[bytes]:
    """The pool, then mutations of it: the same ones for the same seed."""
    dice = random.Random(f"{seed} {target.name}")
    yield from pool[:count]
    for _ in range(count - len(pool)):
        yield mutate(dice, dice.choice(pool), pool, target.text)


# --- one target


def targets() -> tuple[Target, ...]:
    """All of them; imported late, so that atheris can see to it first."""
    import fuzz_firmware  # noqa: PLC0415
    import fuzz_host  # noqa: PLC0415

    return (*fuzz_host.TARGETS, *fuzz_firmware.TARGETS)


def play(target: Target, count: int, seed: int) -> int:
    """So many inputs without coverage; returns how many there were. Raises `Finding`."""
    done = 0
    for data in inputs(target, count, seed, target.seeds()):
        done += 1
        try:
            target.run(data)
        except Exception as error:
            raise Finding(target.name, data, f"{type(error).__name__}: {error}") from error
    return done


def run(name: str, count: int, seed: int) -> None:
    """What the process of one target does; ends it."""
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        target = next(target for target in targets() if target.name == name)
        print("blind", play(target, count, seed))
        return
    with atheris.instrument_imports(include=["vrt", "vrt_host", "fuzz_device"]):
        target = next(target for target in targets() if target.name == name)
    pool = target.seeds()
    corpus = OUT / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(pool):
        (corpus / f"seed-{number}").write_bytes(data[:MAX_BYTES])

    def one(data: bytes) -> None:
        try:
            target.run(data)
        except Exception as error:
            raise Finding(name, data, f"{type(error).__name__}: {error}") from error

    def custom(data: bytes, most: int, number: int) -> bytes:
        dice = random.Random(number)
        if dice.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return mutate(dice, data, pool, target.text)[:most]

    options: dict[str, object] = {"runs": count, "seed": seed, "max_len": MAX_BYTES, "timeout": INPUT_S}
    options |= {"print_final_stats": 1, "artifact_prefix": f"{OUT}/", "rss_limit_mb": 4096}
    words = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *words, str(corpus)], one, custom_mutator=custom)
    atheris.Fuzz()


def apart(name: str, count: int, seed: int) -> str:
    """A target in its own process; returns what is to be said of it. Raises `RuntimeError` with the finding."""
    command = [sys.executable, __file__, "--child", name, "--inputs", str(count), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, errors="replace")
    said = done.stdout + done.stderr
    if done.returncode:
        lines = said.splitlines()
        first = next(
            (n for n, line in enumerate(lines) if "Finding" in line or "ERROR: libFuzzer" in line), -25
        )
        raise RuntimeError("\n".join(line[:4000] for line in lines[first:][:25]))
    if said.startswith("blind"):
        return f"{int(said.split()[1]):,} inputs, without coverage: atheris is not installed"
    ran = next(line.split()[-1] for line in reversed(said.splitlines()) if "number_of_executed_units" in line)
    edges = [
        words[words.index("cov:") + 1] for line in said.splitlines() if "cov:" in (words := line.split())
    ]
    if not edges:
        raise RuntimeError("its code was imported before atheris could see to it: no coverage")
    return f"{int(ran):,} inputs, {edges[-1]} edges covered"


# --- MicroPython


def on_micropython(binary: str, target: Target, data: Sequence[bytes]) -> None:
    """Inputs through a target's function of fuzz_device.py, there and here. Raises `Finding` where they differ."""
    import fuzz_firmware  # noqa: PLC0415

    sent = b"".join(target.letter.encode() + len(one).to_bytes(4, "little") + one for one in data)
    done = subprocess.run([binary, str(DEVICE)], input=sent, capture_output=True, check=False, timeout=300)
    lines = done.stdout.decode("utf-8", "replace").split("\n")[:-1]
    for one, line in zip(data, lines, strict=False):
        expected = fuzz_firmware.device.PARSERS[target.letter](one)
        if line != expected:
            raise Finding(target.name, one, f"MicroPython: {line[:500]}\n  CPython:     {expected[:500]}")
    if len(lines) < len(data):
        raise Finding(target.name, data[len(lines)], f"MicroPython ended: {done.stderr[-300:]!r}")


def kept(target: Target) -> list[bytes]:
    """The seeds, and what coverage found worth keeping."""
    files = sorted((OUT / "corpus" / target.name).glob("*"))
    return target.seeds() + [path.read_bytes() for path in files if not path.name.startswith("seed-")]


def compare(target: Target, count: int, seed: int) -> int:
    """So many inputs on both runtimes."""
    from vrt_host.sim.board import find_micropython  # noqa: PLC0415  (imports numpy)

    binary = str(find_micropython())
    batch: list[bytes] = []
    done = 0
    for data in inputs(target, count, seed, kept(target)):
        batch.append(data)
        done += 1
        if len(batch) == BATCH or done == count:
            on_micropython(binary, target, batch)
            batch = []
    return done


def main() -> int:
    """Print what was run; 1 when there was a finding."""
    parser = argparse.ArgumentParser(description="Fuzz the parsers of both sides.")
    parser.add_argument("only", nargs="*", metavar="TARGET")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run(args.child, args.inputs, args.seed)
        return 0
    known = targets()
    chosen = [target for target in known if not args.only or target.name in args.only]
    if unknown := set(args.only) - {target.name for target in known}:
        parser.error(
            f"no such target: {', '.join(sorted(unknown))}; known: {' '.join(one.name for one in known)}"
        )
    OUT.mkdir(parents=True, exist_ok=True)
    findings = 0
    weights = sum(target.weight for target in chosen)
    device = [target for target in chosen if target.letter]
    here = args.inputs * (1 - (ON_MICROPYTHON if device else 0))
    for target in chosen:
        started = time.monotonic()
        try:
            said = apart(target.name, -(-int(here) * target.weight // weights), args.seed)
        except RuntimeError as error:
            findings += 1
            said = f"FINDING\n{error}"
        print(f"fuzz: {target.name}: {said} ({time.monotonic() - started:.0f} s)", flush=True)
    for target in device:
        share = args.inputs * ON_MICROPYTHON * target.weight / sum(one.weight for one in device)
        try:
            said = f"{compare(target, -int(-share // 1), args.seed):,} inputs are the same on MicroPython"
        except Finding as error:
            findings += 1
            said = f"FINDING\n{error}"
        print(f"fuzz: {target.name}: {said}", flush=True)
    print(f"fuzz: {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
