# The device's settings: what is known, what it may be, what it is when nothing is said. Only the start needs this
# module; it is forgotten then.
import json

from micropython import const

from vrt.errors import ConfigError

_PCM16_MS = const(1100)  # a ring holds 64 KiB

# name: (default, what it may be). A type; a tuple of words; or (least, most) for an integer.
SETTINGS = {
    "url": (None, str),  # of the host: ws://192.168.1.20:8080/ or wss://...
    "token": ("", str),  # this device's credential, see `vrt token`; never shown
    "wifi_ssid": ("", str),  # the network's name
    "wifi_password": ("", str),  # empty for an open one; never shown
    "ca": ("", str),  # file with the certificate to trust for wss://, PEM or DER
    "ntp": ("pool.ntp.org", str),  # the server that tells the time, for wss:// on boards
    "update_key": ("", str),  # file with the public key of updates; none are taken without
    "id": ("", str),  # the device's name for the host; the board's when empty
    "listen": ("button", ("button", "open")),  # the microphone is live while the user asks, or always
    "duplex": ("half", ("half", "full")),  # full: it stays live while the device speaks
    "mute": (False, bool),  # the microphone is never live
    "input": ("pcmu", ("pcmu", "pcm16")),  # format to send: 8 kHz mu-law or 24 kHz samples
    "output": ("pcmu", ("pcmu", "pcm16")),  # format to play
    "volume": (100, (0, 100)),  # of the speaker, in percent
    "buffer_ms": (600, (100, 3000)),  # how far the host may run ahead of the speaker
    "prefill_ms": (40, (0, 500)),  # audio gathered before the sound begins
    "message_bytes": (2048, (1024, 32768)),  # the largest message from the host
    "ping_ms": (
        15_000,
        (1000, 60_000),
    ),  # silence after which a sign of life is sent; 2.5 times that is a dead link
    "tool_stream": (False, bool),  # the host tells of calls while they come about, for a display
    "voice_confirm": (False, bool),  # tools may let the host ask for confirmations (confirm="voice")
    "safe_boot_ms": (
        2000,
        (0, 10_000),
    ),  # wait at the start, in which Ctrl-C or the held button stops the program
    "stats_ms": (10_000, (0, 600_000)),  # time between figures in the log; 0: none
}


def checked(config, duplex="full"):
    # The settings as a dict, complete. `config`: what is said of them, such as config.json; `duplex`: what the board can do. Raises ConfigError.
    if not isinstance(config, dict):
        raise ConfigError('config: must be an object of settings, such as {"url": "ws://192.168.1.20:8080/"}')
    for name in config:
        if name not in SETTINGS:
            raise ConfigError(f"config: unknown setting {name!r}; known are " + ", ".join(sorted(SETTINGS)))
    made = {}
    for name, (default, allowed) in SETTINGS.items():
        made[name] = config.get(name, default)
        if default is None and name not in config:
            raise ConfigError(f'config: "{name}" is missing')
        _must(name, made[name], allowed)
    if not made["url"]:
        raise ConfigError('config: "url" is empty; use the host\'s address, such as ws://192.168.1.20:8080/')
    if made["duplex"] == "full" and duplex != "full":
        raise ConfigError(
            'config: "duplex" cannot be "full" on this board: its microphone and speaker share a clock'
        )
    if made["output"] == "pcm16" and made["buffer_ms"] > _PCM16_MS:
        raise ConfigError(f'config: "buffer_ms" can be at most {_PCM16_MS} when "output" is "pcm16"')
    if made["prefill_ms"] > made["buffer_ms"] + 200:  # the ring holds no more (sound.py)
        raise ConfigError('config: "prefill_ms" can be at most "buffer_ms" + 200')
    return made


def _must(name, value, allowed):
    shown = "something else" if name in ("token", "wifi_password") else repr(value)  # never into a log
    if isinstance(allowed, tuple) and isinstance(allowed[0], int):
        least, most = allowed
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f'config: "{name}" must be a whole number from {least} to {most}, not {shown}')
    elif isinstance(allowed, tuple):
        if value not in allowed:
            words = " or ".join([json.dumps(word) for word in allowed])
            raise ConfigError(f'config: "{name}" must be {words}, not {shown}')
    elif not isinstance(value, allowed):
        what = "true or false" if allowed is bool else "a text in quotes"
        raise ConfigError(f'config: "{name}" must be {what}, not {shown}')
