"""speech/parts.py and what it names: recognisers and synthesisers, against servers in processes of their own."""

import asyncio
import contextlib
import json
import socket
from types import SimpleNamespace

import numpy as np
import pytest
from peers.process import PeerProcess
from vrt_host.agents import chat_ears
from vrt_host.agents.base import PCMU
from vrt_host.agents.chat_ears import Ears
from vrt_host.agents.provider import ProviderError
from vrt_host.errors import UsageError
from vrt_host.speech import parts, tts, wyoming
from vrt_host.speech.loudness import Loudness
from vrt_host.speech.resample import resample
from vrt_host.speech.segments import Began, Ended, Segments, Spoke
from vrt_host.speech.vad import RATE, WINDOW, WINDOW_MS
from wyoming.event import Event

WORDS = np.full(RATE // 2, 0.25, np.float32)


def recogniser(peer, name, **options):
    url = f"tcp://127.0.0.1:{peer.port}" if name == "wyoming" else f"http://127.0.0.1:{peer.port}/v1"
    options = {"url": url, "key": "a-key", "model": None, "language": None, "timeout_s": 10, **options}
    return parts.recogniser(name, **options)


def synthesiser(peer, name, **options):
    url = f"tcp://127.0.0.1:{peer.port}" if name == "wyoming" else f"http://127.0.0.1:{peer.port}/v1"
    return parts.synthesiser(
        name, **{"url": url, "key": "a-key", "model": None, "voice": None, "timeout_s": 10, **options}
    )


@contextlib.asynccontextmanager
async def closing(part):
    yield part
    if part.close is not None:
        await part.close()


async def heard(recogniser):
    utterance = recogniser.utterance()
    utterance.feed(WORDS[:4000])
    utterance.feed(WORDS[4000:])
    return await utterance.text()


async def sound(voice, text="It is done."):
    """(rate, samples) of what is said."""
    rates, pieces = set(), []
    async for rate, samples in voice.speak(text):
        rates.add(rate)
        pieces.append(samples)
    (rate,) = rates
    return rate, np.concatenate(pieces)


# --- Wyoming


async def test_wyoming_recogniser_hears_while_it_is_spoken():
    async with PeerProcess("wyoming") as peer:
        ears = recogniser(peer, "wyoming", model="tiny", language="en")
        await ears.check()
        utterance = ears.utterance()
        utterance.feed(WORDS)
        await peer.seen("chunk")  # before the utterance has ended
        assert await utterance.text() == "Hello there."
        await peer.seen("transcribe", name="tiny", language="en")
        await peer.seen("speech_started", rate=RATE)
        await peer.seen("committed", ms=500)


async def test_wyoming_utterance_that_is_of_no_use_ends_its_connection():
    async with PeerProcess("wyoming") as peer:
        utterance = recogniser(peer, "wyoming").utterance()
        utterance.feed(WORDS)
        await peer.seen("chunk")
        utterance.cancel()
        await peer.seen("closed")
        assert peer.count("committed") == 0


async def test_wyoming_server_that_takes_nothing_is_not_waited_for_without_bound(caplog):
    with socket.create_server(("127.0.0.1", 0)) as server:  # it never accepts
        there = SimpleNamespace(port=server.getsockname()[1])
        utterance = recogniser(there, "wyoming").utterance()
        for _ in range(wyoming._WAITING + 5):  # without giving it a moment
            utterance.feed(WORDS[:512])
        assert utterance._waiting.qsize() == wyoming._WAITING
        assert caplog.text.count("some of it is dropped") == 1
        utterance.cancel()


async def test_wyoming_voice_speaks_at_its_own_rate():
    async with PeerProcess("wyoming", rate=16_000) as peer:
        voice = synthesiser(peer, "wyoming", voice="joe")
        await voice.check()
        rate, samples = await sound(voice)
        assert (rate, len(samples)) == (16_000, 3200)
        assert np.abs(samples).max() == pytest.approx(12_000 / 32_768, abs=0.01)
        await peer.seen("spoken", text="It is done.", voice="joe")


async def test_wyoming_server_that_fails_says_how():
    async with PeerProcess("wyoming") as peer:
        for fault, kind in {"error": "refused", "disconnect": "gone", "malformed": "malformed"}.items():
            await peer.do("fail", fault=fault)
            for work in (heard(recogniser(peer, "wyoming")), sound(synthesiser(peer, "wyoming"))):
                with pytest.raises(ProviderError) as caught:
                    await work
                assert caught.value.kind == kind
                assert fault != "error" or "It broke." in caught.value.said
        await peer.do("fail", fault="width")
        with pytest.raises(ProviderError, match="16-bit mono"):
            await sound(synthesiser(peer, "wyoming"))


@pytest.mark.parametrize(
    ("data", "text"),
    [({"text": None}, ""), ({"text": " Hello. "}, "Hello."), ({}, None), ({"rate": "x"}, None)],
    ids=["no text", "text", "no member", "another's"],
)
async def test_wyoming_transcript_is_read_however_it_is_written(data, text):
    async def serve(reader, writer):
        with contextlib.closing(writer.transport):
            while b"audio-stop" not in await reader.readline():
                pass
            pieces = Event("transcript-start").to_dict(), Event("transcript-chunk", {"text": "He"}).to_dict()
            for event in (*pieces, {"type": "transcript", "data": data}):
                writer.write(json.dumps(event).encode() + b"\n")
            await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        there = SimpleNamespace(port=server.sockets[0].getsockname()[1])
        if text is None:
            with pytest.raises(ProviderError) as caught:
                await heard(recogniser(there, "wyoming"))
            assert caught.value.kind == "malformed"
        else:
            assert await heard(recogniser(there, "wyoming")) == text


async def test_wyoming_server_of_another_kind_is_refused_at_the_start():
    async with PeerProcess("wyoming", domains=["tts"]) as peer:
        with pytest.raises(ProviderError, match="does not recognise speech"):
            await recogniser(peer, "wyoming").check()
        await synthesiser(peer, "wyoming").check()


async def test_server_that_is_not_there_is_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    peer = SimpleNamespace(port=port)
    async with closing(recogniser(peer, "openai")) as ears:
        for work in (recogniser(peer, "wyoming").check(), heard(ears)):
            with pytest.raises(ProviderError) as caught:
                await work
            assert caught.value.kind == "unreachable"


# --- OpenAI's endpoints


async def test_endpoint_recognises_a_wav_file_and_speaks():
    async with (
        PeerProcess("speech_api") as peer,
        closing(recogniser(peer, "openai", language="en")) as ears,
        closing(synthesiser(peer, "openai")) as voice,
    ):
        await peer.do("hear", texts=["Lock the door. "])
        assert await heard(ears) == "Lock the door."
        await peer.seen("committed", ms=500, model="whisper-1", language="en", response_format="json")
        for _ in ("bare samples", "a WAV file"):
            rate, samples = await sound(voice)
            assert (rate, len(samples)) == (24_000, round(24_000 * 0.11))
            assert np.abs(samples).max() == pytest.approx(12_000 / 32_768, abs=0.01)
            await peer.seen("spoken", voice="alloy", response_format="pcm")
            await peer.do("wav")


async def test_endpoint_that_refuses_says_why():
    async with (
        PeerProcess("speech_api") as peer,
        closing(recogniser(peer, "openai")) as ears,
        closing(synthesiser(peer, "openai")) as voice,
    ):
        for kind in ("key", "model", "rate", "quota", "expired", "format"):
            await peer.do("fail", kind=kind)
            for work in (heard(ears), sound(voice)):
                with pytest.raises(ProviderError) as caught:
                    await work
                assert caught.value.kind == kind


# --- offline


async def test_offline_recogniser_and_voice_understand_each_other():
    await asyncio.to_thread(parts.load, "piper")
    voice = parts.synthesiser("piper", url="", key="", model=None, voice=None, timeout_s=1)
    rate, samples = await sound(voice, "Turn on the light.")
    assert rate == 22_050
    await asyncio.to_thread(parts.load, "moonshine")
    ears = parts.recogniser("moonshine", url="", key="", model=None, language=None, timeout_s=1)
    utterance = ears.utterance()
    utterance.feed(resample(samples, rate, RATE))
    assert "turn on the light" in (await utterance.text()).lower()


async def test_voice_that_does_not_start_says_what_to_install(monkeypatch):
    def broken(module):
        raise tts.SpeechError("no such voice")

    monkeypatch.setattr(tts, "VoiceProcess", broken)
    monkeypatch.setattr(parts, "_loaded", {})
    with pytest.raises(UsageError, match=r"espeak.*no such voice.*pip install"):
        parts.load("espeak")


# --- where utterances begin and end


def cut(*pieces, silence_ms=300, longest_ms=3000):
    segments = Segments(Loudness(), silence_ms=silence_ms, longest_ms=longest_ms)
    samples = np.concatenate([np.full(int(RATE * s), level, np.float32) for s, level in pieces])
    events = []
    for at in range(0, len(samples), 300):
        events += segments.feed(samples[at : at + 300])
    return segments, events


def test_utterance_has_what_was_just_before_it_and_ends_after_silence():
    segments, events = cut((1, 0.0), (0.5, 0.2), (1, 0.0))
    assert [type(one) for one in events if not isinstance(one, Spoke)] == [Began, Ended]
    assert events[-1].voiced_ms == pytest.approx(500, abs=64)
    total = sum(len(one.samples) for one in events if isinstance(one, Spoke)) / RATE
    assert total == pytest.approx(0.32 + 0.5 + 0.3, abs=0.1)
    assert not segments.speaking


def test_utterance_without_a_pause_is_ended_and_the_rest_of_it_not_heard():
    _, events = cut((4.5, 0.2), (0.5, 0.0), (0.5, 0.2), (1, 0.0))
    kinds = [type(one) for one in events if not isinstance(one, Spoke)]
    assert kinds == [Began, Ended, Began, Ended]
    assert events[[type(one) for one in events].index(Ended)].voiced_ms <= 3000 + WINDOW_MS


def test_utterance_ends_when_the_audio_does():
    segments, _ = cut((1, 0.0), (0.5, 0.2))
    assert [type(one) for one in segments.stall()] == [Ended]
    assert segments.stall() == []


async def test_audio_that_no_detector_takes_is_bounded(caplog):
    segments = Segments(Loudness(), silence_ms=300, longest_ms=3000)
    ears = Ears(PCMU, segments, parts.Recogniser(list), began=list, ended=list)
    for number in range(chat_ears._QUEUED_FRAMES + 10):
        ears.hear(number.to_bytes(2, "big"))
    assert [int.from_bytes(frame, "big") for frame in ears._frames] == [
        *range(10, chat_ears._QUEUED_FRAMES + 10)
    ]
    assert caplog.text.count("slower than speech") == 1


def test_loudness_gets_used_to_a_noise():
    noise = np.full(RATE * 10, 0.01, np.float32)
    heard = Loudness().feed(noise)
    assert heard[0] == 1.0
    assert heard[-1] == 0.0
    assert len(heard) == len(noise) // WINDOW
