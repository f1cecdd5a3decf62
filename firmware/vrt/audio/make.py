# Makes microphone and speaker for the formats in effect, at the volume that is set. Imported when one is made, or the volume
# changed, and forgotten at once.
import gc

from micropython import const

import vrt
from vrt.audio.mic import Mic
from vrt.audio.speaker import Speaker

_SPARE_MS = const(200)  # the ring holds so much more than what we announce (decisions 11)


def make(sound, output, input):
    # The formats as (encoding, rate). Raises ConfigError for one that we cannot make; that direction alone is then silent.
    vrt.forget("vrt.audio.make")
    try:
        if output != sound.output:
            _speaker(sound, output)
    finally:
        if input != sound.input:
            _mic(sound, input)


def _speaker(sound, made):
    board, config = sound.board, sound.config
    encoding, rate = made
    if sound.speaker:
        sound.speaker.close()
    sound.speaker = sound.output = None
    sound.playing = False
    gc.collect()
    ring_ms = config["buffer_ms"] + _SPARE_MS
    sound.speaker = Speaker(
        board.speaker(),
        encoding=encoding,
        rate=rate,
        dac_rate=board.DESCRIPTION["dac_rate"],
        ring_bytes=ring_ms * rate // 1000 * (1 if encoding == "pcmu" else 2),
        dma_ms=board.DESCRIPTION["dma_ms"],
        prefill_ms=config["prefill_ms"],
        reopen=board.speaker,
    )
    sound.output = made
    _loud(sound)


def _mic(sound, made):
    board = sound.board
    encoding, rate = made
    if sound.mic:
        sound.mic.close()
    sound.mic = sound.input = None
    gc.collect()
    sound.mic = Mic(
        board.microphone(),
        encoding=encoding,
        rate=rate,
        mic_rate=board.DESCRIPTION["mic_rate"],
        dma_ms=board.DESCRIPTION["mic_dma_ms"],
        reopen=board.microphone,
    )
    sound.input = made


def _loud(sound):
    # The board's own volume, where it has one. Ours is the square of what is asked for, as loudness is heard; full volume costs
    # nothing in half duplex.
    part = sound.config["volume"]
    if hasattr(sound.board, "volume"):
        sound.board.volume(part)
        part = 100
    if sound.speaker:
        measured = sound.config["duplex"] == "full"
        sound.speaker.volume = part * part * 32768 // 10000 if part < 100 or measured else -1


def adjust(sound, value):
    # Another volume. Where full duplex is wanted, the echo is measured again, and until then it is half.
    vrt.forget("vrt.audio.make")
    sound.cancel()
    sound.config["volume"] = max(0, min(100, value))
    _loud(sound)
    if sound.config["duplex"] == "full":
        sound.half = sound.fresh = True
