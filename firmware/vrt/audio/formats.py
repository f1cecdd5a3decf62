# The formats that a microphone and a speaker can make of what their hardware offers. Imported when one is made, and
# forgotten at once, so that its code does not stay in the heap.
from micropython import const

import vrt
from vrt.errors import ConfigError

_LARGEST = const(65534)  # RingIO counts in 16 bits, and one byte stays spare
# How many samples before the new ones a filter of dsp.resample looks at, by its ratio; 2: there is nothing to filter.
_PAST = {1: 26, 2: 0, 3: 9, 4: 13, 6: 9}


def _width(encoding, rate):
    # The bytes of a sample on the wire.
    if encoding == "pcmu" and rate == 8000:
        return 1
    if encoding == "pcm16":
        return 2
    raise ConfigError(f"audio is pcmu at 8000 Hz or pcm16, not {encoding} at {rate}")


def mic(encoding, rate, mic_rate):
    # (width, ratio, past): bytes of a sample, what dsp.resample does, and how far back it looks.
    vrt.forget("vrt.audio.formats")
    width = _width(encoding, rate)
    for ratio in (1, 2, 3):
        if rate * 2 == mic_rate * ratio:
            return width, ratio, _PAST[ratio]
    raise ConfigError(
        f"a microphone of {mic_rate} Hz cannot send {rate} Hz, only its own rate, half or 3/2 of it"
    )


def speaker(encoding, rate, dac_rate, ring_bytes):
    # The same for a speaker.
    vrt.forget("vrt.audio.formats")
    width = _width(encoding, rate)
    if not width <= ring_bytes <= _LARGEST:
        raise ConfigError(f"a ring holds {width} to {_LARGEST} bytes, not {ring_bytes}")
    for ratio in (2, 4, 6)[2 - width :]:  # there is no kernel for mu-law at the DAC's own rate
        if rate * ratio == dac_rate * 2:
            return width, ratio, _PAST[ratio]
    raise ConfigError(
        f"a DAC at {dac_rate} Hz cannot play {encoding} at {rate} Hz, only at its rate, half or a third"
    )
