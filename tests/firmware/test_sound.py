import main
from fake_device import LOUD, Device, FakeBoard, opened
from support import raises
from test_main import Clock, with_start
from vrt import figures
from vrt.config import checked
from vrt.errors import ConfigError
from vrt.setup import crash
from vrt.sound import Sound

PCM = {"encoding": "pcm16", "sampleRate": 24000}


def sound(**settings):
    settings["url"] = "ws://h/"
    board = FakeBoard({})
    board.DESCRIPTION["dac_rate"] = 24000
    return Sound(board, checked(settings))


def test_formats_are_asked_for_as_configured():
    assert sound().prefer == {
        "input": {"encoding": "pcmu", "sampleRate": 8000},
        "output": {"encoding": "pcmu", "sampleRate": 8000},
    }
    assert sound(input="pcm16", output="pcm16").prefer == {"input": PCM, "output": PCM}


def test_the_servers_choice_is_adopted_in_both_directions():
    made = sound()
    mic, speaker = made.mic, made.speaker
    made.adopt({"input": {"encoding": "pcmu"}, "output": {"encoding": "pcmu", "sampleRate": 8000.0}})
    assert made.mic is mic
    assert made.speaker is speaker
    made.adopt({"input": {"encoding": "pcm16"}, "output": PCM})
    assert made.input == made.output == ("pcm16", 24000)
    assert made.mic.n == 5 + 960
    made.adopt({"input": {"encoding": "pcmu"}, "output": {"encoding": "pcmu"}})
    assert made.mic.n == 5 + 160


def test_a_format_that_cannot_be_made_silences_its_direction_only():
    made = sound()
    raises(ConfigError, made.adopt, {"input": {"encoding": "pcmu"}, "output": {"encoding": "opus"}})
    assert made.speaker is None
    assert made.mic is not None
    made.play(bytearray(165), 165, 0)  # what comes all the same
    assert made.flush() == ()
    assert not made.playing
    assert "received" not in figures.of(made)
    raises(ConfigError, made.adopt, {"input": {"encoding": "opus"}, "output": {"encoding": "pcmu"}})
    assert made.speaker is not None
    assert made.mic is None
    made.listen(True, "idle", 0)
    made.send(None, None, False, 0)
    made.adopt({"input": {"encoding": "pcmu"}, "output": {"encoding": "pcmu"}})
    assert made.mic is not None
    assert made.speaker is not None


def test_both_formats_are_adopted_or_silent_whatever_the_other_is():
    device = Device(listen="open")
    device.board.hear(LOUD)
    device.open(input={"encoding": "pcm16", "sampleRate": 24000}, output={"encoding": "opus"})
    device.run(200)
    assert device.last("error")["code"] == "FORMAT"
    assert device.link.frames
    assert [len(frame) for frame in device.link.frames if len(frame) != 5 + 960] == []


def test_a_reply_is_whole_however_much_is_gathered_before_it_begins():
    device = opened(buffer_ms=100, prefill_ms=300)
    device.turn("speaking", 1)
    device.item("i", 1)
    for sent in range(100):
        while sent * 20 >= device.app.config["buffer_ms"] + device.now - 1000:
            device.run(10)
        device.audio(1)
    device.run(3000)
    told = figures.of(device.app.sound)
    assert (told["received"], told["speaker_dropped"]) == (100, 0)


def test_the_ring_holds_what_was_announced_and_200_ms():
    made = sound(buffer_ms=600)
    frame = bytearray(b"\2\0\0\0\0" + b"\x10" * 160)
    made.speaker.begin("i")
    for _ in range(41):
        made.play(frame, 165, 0)
    assert figures.of(made)["received"] == 41
    assert figures.of(made)["speaker_dropped"] == 1
    assert sound(buffer_ms=1100, output="pcm16").speaker is not None


def test_a_server_that_sends_what_we_cannot_play_does_not_stop_the_device():
    device = Device()
    device.run(20)
    device.ready(output={"encoding": "opus"})
    device.run(50)
    assert device.last("error")["code"] == "FORMAT"
    device.turn("speaking", 1)
    device.item("i", 1)
    device.audio(5)
    device.call("light", 1, state="on")
    device.run(50)
    device.press(100)
    device.run(100)
    assert device.done == ["light on"]
    assert device.app.session.state == "open"


def test_the_figures_of_a_conversation():
    device = opened(listen="open", duplex="full")
    device.run(300)
    device.speak(count=10)
    device.run(500)
    told = figures.of(device.app.sound)
    assert told["received"] == 10
    assert told["sent"] == len(device.link.frames)
    assert sum(told[name] for name in told if name not in ("received", "sent")) == 0


def _interrupted(*_):
    raise KeyboardInterrupt


def test_the_i2s_is_free_when_the_device_is_stopped_in_the_midst_of_a_word():
    device = opened(listen="open")
    device.run(200)
    device.speak(count=20)
    board = device.board
    ended = []
    board.played.deinit = lambda: ended.append("tx")
    board.heard.deinit = lambda: ended.append("rx")
    board.wait = _interrupted  # Ctrl-C, as before a soft reset
    board.safe = lambda: None
    main.time = crash.time = Clock()
    raises(KeyboardInterrupt, with_start, lambda board: device.app, board)
    assert device.app.sound.playing
    assert ended == ["tx", "rx"]


def test_the_microphone_is_closed_though_the_speaker_cannot_be():
    made = sound()
    ended = []
    made.speaker.i2s.deinit = _interrupted
    made.mic.i2s.deinit = lambda: ended.append("rx")
    raises(KeyboardInterrupt, made.close)
    assert ended == ["rx"]
