"""The espeak-ng synthesiser, as a process: `python -m vrt_host.speech.espeak_worker`. It is GPL; nothing imports this."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from vrt_host.speech.worker import serve

_SYNCHRONOUS = 2  # AUDIO_OUTPUT_SYNCHRONOUS: espeak_Synth returns when all audio went through the callback
_DONT_EXIT = 0x8000
_BUFFER_MS = 60
_UTF8 = 1
_IPA = 2
_RATE_WPM = 160

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Espeak:
    """A machine's voice; poor on telephone bandwidth, but it starts at once and is small."""

    name = "espeak-ng (en-us)"

    def __init__(self) -> None:
        import espeakng_loader  # type: ignore[import-untyped]  # noqa: PLC0415  (its absence is reported by `serve`)

        library = ctypes.CDLL(espeakng_loader.get_library_path())
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        library.espeak_TextToPhonemes.argtypes = [
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_int,
            ctypes.c_int,
        ]
        library.espeak_Synth.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        folder = espeakng_loader.get_data_path().encode()
        self.rate = library.espeak_Initialize(_SYNCHRONOUS, _BUFFER_MS, folder, _DONT_EXIT)
        if self.rate <= 0:
            raise RuntimeError("espeak-ng does not start")
        if library.espeak_SetVoiceByName(b"en-us") != 0:
            raise RuntimeError("espeak-ng has no American English")
        library.espeak_SetParameter(1, _RATE_WPM, 0)
        self._library = library
        self._chunks: list[bytes] = []
        self._callback = _Callback(self._take)  # kept: the library holds only its address
        library.espeak_SetSynthCallback(self._callback)

    def _take(self, samples: ctypes._Pointer[ctypes.c_short], count: int, _events: object) -> int:
        if samples and count > 0:
            self._chunks.append(ctypes.string_at(samples, 2 * count))
        return 0

    def say(self, text: str) -> Iterator[bytes]:
        self._chunks = []
        data = text.encode() + b"\0"
        if self._library.espeak_Synth(data, len(data), 0, 0, 0, _UTF8, None, None) != 0:
            raise RuntimeError("espeak-ng failed")
        yield from self._chunks

    def phonemes(self, word: str) -> str:
        buffer = ctypes.create_string_buffer(word.encode())
        text = ctypes.c_void_p(ctypes.addressof(buffer))
        ipa = self._library.espeak_TextToPhonemes(ctypes.byref(text), _UTF8, _IPA)
        return ipa.decode() if ipa else ""


if __name__ == "__main__":
    serve(Espeak)
