from support import raises
from vrt.config import SETTINGS, checked
from vrt.errors import ConfigError


def fault(raw, duplex="full"):
    return str(raises(ConfigError, checked, raw, duplex))


def test_the_url_is_enough():
    config = checked({"url": "ws://host:1/"})
    assert config["url"] == "ws://host:1/"
    assert (config["listen"], config["duplex"], config["mute"]) == ("button", "half", False)
    assert (config["input"], config["output"], config["message_bytes"]) == ("pcmu", "pcmu", 2048)
    assert config["voice_confirm"] is False
    assert sorted(config) == sorted(SETTINGS)


def test_every_setting_can_be_given():
    values = {
        "url": "ws://h/",
        "token": "t",
        "update_key": "k",
        "wifi_ssid": "s",
        "wifi_password": "p",
        "ca": "f",
        "ntp": "n",
        "volume": 0,
        "id": "i",
        "listen": "open",
        "duplex": "full",
        "mute": True,
    }
    values.update(
        {"input": "pcm16", "output": "pcm16", "buffer_ms": 100, "prefill_ms": 0, "message_bytes": 1024}
    )
    values.update({"ping_ms": 1000, "voice_confirm": True, "tool_stream": True})
    values.update({"safe_boot_ms": 0, "stats_ms": 0})
    assert sorted(values) == sorted(SETTINGS)
    assert checked(values) == values


def test_no_more_is_gathered_than_the_buffer_holds():
    assert "prefill_ms" in fault({"url": "ws://h/", "buffer_ms": 100, "prefill_ms": 301})
    assert checked({"url": "ws://h/", "buffer_ms": 100, "prefill_ms": 300})


def test_missing_or_empty_url():
    assert '"url" is missing' in fault({})
    assert '"url" is empty' in fault({"url": ""})


def test_unknown_setting_is_named_with_the_known_ones():
    text = fault({"url": "ws://h/", "lisen": "open"})
    assert "'lisen'" in text
    assert "listen" in text


def test_wrong_values_say_what_is_right():
    for name, value, words in (
        ("url", 5, "a text"),
        ("token", 5, "a text"),
        ("listen", "Open", '"button" or "open"'),
        ("listen", True, '"button" or "open"'),
        ("duplex", None, '"half" or "full"'),
        ("mute", "no", "true or false"),
        ("mute", 0, "true or false"),
        ("input", "opus", '"pcmu" or "pcm16"'),
        ("output", ["pcmu"], '"pcmu" or "pcm16"'),
        ("buffer_ms", 99, "from 100 to 3000"),
        ("buffer_ms", 3001, "from 100 to 3000"),
        ("buffer_ms", "600", "from 100 to 3000"),
        ("buffer_ms", 600.5, "from 100 to 3000"),
        ("ping_ms", True, "from 1000 to 60000"),
        ("message_bytes", 1023, "from 1024"),
    ):
        text = fault({"url": "ws://h/", name: value} if name != "url" else {"url": value})
        assert f'"{name}"' in text
        assert words in text, text


def test_what_is_no_object():
    for raw in ([], None, "x", 5):
        assert "must be an object" in fault(raw)


def test_full_duplex_needs_a_board_that_can():
    assert checked({"url": "ws://h/", "duplex": "full"}, "full")["duplex"] == "full"
    assert "share a clock" in fault({"url": "ws://h/", "duplex": "full"}, "half")
    assert checked({"url": "ws://h/"}, "half")["duplex"] == "half"


def test_much_pcm16_does_not_fit():
    assert "at most 1100" in fault({"url": "ws://h/", "output": "pcm16", "buffer_ms": 1101})
    checked({"url": "ws://h/", "output": "pcm16", "buffer_ms": 1100})
    checked({"url": "ws://h/", "buffer_ms": 3000})


def test_secrets_are_in_no_message():
    assert "1234567" not in fault({"url": "ws://h/", "wifi_password": 1234567})
    assert "1234567" not in fault({"url": "ws://h/", "token": 1234567})
