"""A Wyoming server that recognises and speaks, of the `wyoming` package's own parts: what it cannot read is invalid."""

import asyncio
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the package still takes `audioop`
    from wyoming.asr import Transcribe, Transcript
    from wyoming.audio import AudioChunk, AudioStart, AudioStop
    from wyoming.error import Error
    from wyoming.event import async_read_event, async_write_event
    from wyoming.info import AsrModel, AsrProgram, Attribution, Describe, Info, TtsProgram, TtsVoice
    from wyoming.tts import Synthesize

from peers.plan import tone
from peers.process import Peer, main

_FROM = {
    "attribution": Attribution("us", "https://example.org"),
    "installed": True,
    "description": None,
    "version": None,
}


class WyomingPeer(Peer):
    """`domains`: what it offers. `rate` of its voice."""

    def __init__(self, *, domains=("asr", "tts"), rate=22_050):
        super().__init__()
        self._rate, self._width, self._fault = rate, 2, ""
        asr = AsrProgram(name="ears", models=[AsrModel(name="tiny", languages=["en"], **_FROM)], **_FROM)
        tts = TtsProgram(name="mouth", voices=[TtsVoice(name="joe", languages=["en"], **_FROM)], **_FROM)
        self._info = Info(asr=[asr] if "asr" in domains else [], tts=[tts] if "tts" in domains else [])

    def on_fail(self, fault):
        """How each answer fails from now on: error, disconnect, malformed, width."""
        self._fault = fault
        self._width = 4 if fault == "width" else 2

    async def serve(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _connected(self, reader, writer):
        self.transports.add(writer.transport)
        self.tell("connected")
        self._heard = 0
        try:
            while (event := await async_read_event(reader)) is not None:
                await self._answer(event, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.transports.discard(writer.transport)
            self.tell("closed")
            writer.transport.abort()

    async def _answer(self, event, writer):
        if Describe.is_type(event.type):
            await async_write_event(self._info.event(), writer)
        elif Transcribe.is_type(event.type):
            asked = Transcribe.from_event(event)
            self.tell("transcribe", name=asked.name, language=asked.language)
        elif AudioStart.is_type(event.type):
            self.tell("speech_started", rate=AudioStart.from_event(event).rate)
        elif AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            assert (chunk.width, chunk.channels) == (2, 1)
            self._heard += chunk.milliseconds
            self.tell("chunk")
        elif AudioStop.is_type(event.type):
            self.tell("committed", ms=self._heard)
            if not await self._failed(writer):
                await async_write_event(Transcript("Hello there.").event(), writer)
        elif Synthesize.is_type(event.type):
            asked = Synthesize.from_event(event)
            self.tell("spoken", text=asked.text, voice=asked.voice and asked.voice.name)
            if not await self._failed(writer):
                await self._speak(writer)
        else:
            self.tell("invalid", why=f"an event {event.type}")

    async def _speak(self, writer):
        sound = tone(0.2, "pcm16", self._rate)
        shape = {"rate": self._rate, "width": self._width, "channels": 1}
        await async_write_event(AudioStart(**shape).event(), writer)
        for at in range(0, len(sound), 2048):
            await async_write_event(AudioChunk(audio=sound[at : at + 2048], **shape).event(), writer)
        await async_write_event(AudioStop().event(), writer)

    async def _failed(self, writer):
        if self._fault == "error":
            await async_write_event(Error(text="It broke.", code="broken").event(), writer)
        elif self._fault == "disconnect":
            writer.transport.abort()
        elif self._fault == "malformed":
            writer.write(
                b'{"type": "transcript", "data": {}}\n{"type": "audio-chunk", "payload_length": 2}\n12'
            )
        return self._fault not in ("", "width")


if __name__ == "__main__":
    main(WyomingPeer)
