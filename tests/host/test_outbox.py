"""What waits for a service: in order, and bounded."""

from vrt_host.agents.outbox import AUDIO_BYTES, CHUNK_BYTES, Outbox

SECOND = 32_000


def test_messages_that_wait_are_bounded(caplog):
    out = Outbox[int]("aitp", 3)
    for number in range(6):
        out.put(number)
    assert list(out.messages) == [3, 4, 5]
    assert out.news.is_set()
    assert caplog.text.count("aitp: more than 3 messages wait; the oldest are dropped") == 1
    out.connected()
    out.put(6)
    assert caplog.text.count("the oldest are dropped") == 2


def test_audio_that_waits_is_bounded_and_that_is_told_once_a_connection(caplog):
    out = Outbox[int]("omnia", 3)
    for number in range(8):
        out.hear(bytes([number]) * SECOND)
        assert out.audio_bytes <= AUDIO_BYTES
    out.connected()
    out.hear(bytes([8]) * SECOND, wanted=False)
    assert caplog.text.count("omnia: the user's audio cannot be sent as fast as it comes") == 1
    out.hear(bytes([9]) * SECOND)
    assert caplog.text.count("cannot be sent") == 2
    assert [out.chunk()[0] for _ in range(5)] == [5, 6, 7, 8, 9]
    assert (out.chunk(), out.audio_bytes) == (b"", 0)


def test_audio_goes_in_messages_of_a_tenth_of_a_second_and_again_in_its_order():
    out = Outbox[int]("gemini", 3)
    for number in range(7):
        out.hear(bytes([number]) * 640)
    first, second = out.chunk(), out.chunk()
    assert (len(first), len(second)) == (CHUNK_BYTES, 2 * 640)
    out.hear(bytes([7]))
    out.again([first, second])
    assert out.audio_bytes == 7 * 640 + 1
    assert [out.chunk(), out.chunk()] == [first, second + bytes([7])]
    out.hear(bytes(10))
    out.forget_audio()
    assert (out.chunk(), out.audio_bytes) == (b"", 0)
