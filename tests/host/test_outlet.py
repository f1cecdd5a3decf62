"""Messages made to fit the device."""

import json

from vrt_host.outlet import MAX_TEXT, Outlet
from vrt_host.protocol import wire


class Device:
    """Takes messages of at most `limit` bytes."""

    def __init__(self, limit):
        self.limit = limit
        self.taken = []

    def send(self, type_, /, **members):
        text = json.dumps({"type": type_, **members}, ensure_ascii=False)
        if self.limit is not None and wire.size(text) > self.limit:
            raise wire.TooLargeError("too large")
        self.taken.append(members)
        return True

    def room(self, type_, /, **members):
        return (
            None
            if self.limit is None
            else self.limit - wire.size(json.dumps({"type": type_, **members}, ensure_ascii=False))
        )


def build(part, last):
    return {"text": part, "final": last}


def test_split_sends_one_message_even_for_no_text():
    device = Device(200)
    Outlet(device).split("text", "", build)
    assert device.taken == [{"text": "", "final": True}]


def test_split_ends_where_the_device_s_limit_leaves_no_room_at_all():
    device = Device(20)
    outlet = Outlet(device)
    outlet.split("text", "hello", build)
    outlet.cut("text", "hello", build)
    outlet.send("text", text="hello")
    assert device.taken == []
    assert outlet.dropped == 3


def test_cut_leaves_a_text_that_fits_alone():
    device = Device(60)
    Outlet(device).cut("text", "short", build)
    assert device.taken == [{"text": "short", "final": True}]


def test_cut_marks_what_it_shortens_and_fits_to_the_byte():
    device = Device(60)
    Outlet(device).cut("text", "x" * 100, build)
    (message,) = device.taken
    assert message["text"].rstrip("…") == "x" * (len(message["text"]) - 1)
    assert device.room("text", **message) >= 0


def test_text_for_a_device_without_a_limit_is_split_too():
    device = Device(None)
    Outlet(device).split("text", "é" * 40_000, build)
    assert len(device.taken) == 3
    assert "".join(message["text"] for message in device.taken) == "é" * 40_000
    assert all(len(message["text"].encode()) <= MAX_TEXT for message in device.taken)
