# Makes the device from its board and configuration. Only the start needs this, and it is forgotten afterwards, so that its
# code does not fill the heap.
# ruff: noqa: PLC0415  (nothing large is imported before it is known that the device shall start)
import gc
import sys
import time

from micropython import const

import vrt
from vrt.errors import ConfigError

# Which part of the free heap may fill up before garbage is collected, so that what stays does not end up in the midst of it:
# while code comes in, and afterwards.
_COLLECT_OFTEN = const(32)
_COLLECT_PART = const(4)
# What is sent at once, a frame of audio at least: with its header 512 bytes for mu-law, and 1 KiB for samples.
_PIECE_BYTES = const(498)
_PIECE_BYTES_PCM16 = const(1010)
_SERIAL_BYTES = const(240)  # the same on a serial line, where a frame may be twice as long as what it carries


def start(board):
    # The device, or None when it was stopped. Raises ConfigError.
    air = None
    if hasattr(board, "wlan"):
        air = vrt.use("vrt.setup.air").make(board, _settings)
        if not air.begin():
            return None
    from vrt.config import checked

    config = _settings(board)
    config = checked(config, board.DESCRIPTION["duplex"])
    del checked
    vrt.forget("vrt.config")
    if cancelled(board, config["safe_boot_ms"]):
        return None
    if air and not air.join(config):
        return None
    slots = sys.modules.get("slots")  # of boards that take updates
    if slots and config["update_key"] and (not air or air.ready()):
        update(board, config, slots)
    app = build(board, config)
    if slots:
        app.live = vrt.use("vrt.setup.live").make(slots, board, config, time.ticks_ms())  # pyright: ignore[reportAttributeAccessIssue]
    if air:
        air.adopt(app)
    vrt.forget("vrt.build")
    if hasattr(gc, "threshold"):
        gc.threshold(gc.mem_free() // _COLLECT_PART)
    return app


def shed(app):
    # Takes out of the heap what only the start needs of the modules that stay: no second object of these classes is ever made.
    # None takes the place, because what is deleted from a class would stay in its table.
    talk, session, tools = app.conversation, app.session, app.tools
    for one in (
        app,
        app.link,
        app.log,
        app.sound,
        session,
        session.streams,
        talk,
        talk.button,
        tools,
        tools.confirm,
        talk.journal,
    ):
        kind = type(one)
        while kind is not object:
            kind.__init__ = None  # type: ignore  (it is never called again)
            (kind,) = kind.__bases__
    type(session).restore = type(tools).load = type(tools).add = None


def _settings(board):
    # What config.json says, or the copy from before its last change when it is damaged.
    try:
        return board.config()
    except (OSError, ValueError) as error:  # there is none, or it is no JSON
        why = f"config.json cannot be read ({error})"
        try:
            made = vrt.use("vrt.setup.settings").recover(board.storage + "config.json")
        except (OSError, ValueError):
            raise ConfigError(why) from None
        vrt.forget("vrt.setup.settings")
        board.event("error", code="CONFIG", message=why + "; the copy from before is used")
        return made


def update(board, config, slots):
    # Fetches the update that was noted before the restart, if one was, and starts again, with it.
    board.led("update")
    if vrt.use("vrt.setup.fetch").make(board, config, slots):
        board.restart()
    vrt.forget("vrt.setup.fetch", "vrt.setup.update")


def cancelled(board, wait_ms):
    # The safe-boot window: True when the button is held in it.
    if wait_ms:
        print("vrt: starts in", wait_ms, "ms; Ctrl-C or the button held now stops it")
    begun = time.ticks_ms()
    while time.ticks_diff(time.ticks_ms(), begun) < wait_ms:
        if board.button():
            print("vrt: stopped by the button")
            return True
        board.wait(None, 10)
    return False


def build(board, config):
    # What is large and stays comes first, then what takes much memory for a moment: the tools' declarations. The rest of the
    # code fills the holes that they leave, and what is free stays in one piece. For that, garbage is collected often.
    if hasattr(gc, "threshold"):
        gc.threshold(gc.mem_free() // _COLLECT_OFTEN)
    piece = _PIECE_BYTES_PCM16 if config["input"] == "pcm16" else _PIECE_BYTES
    if config["url"] == "serial:":
        piece = _PIECE_BYTES_PCM16 if config["input"] == "pcm16" else _SERIAL_BYTES
        if not hasattr(board, "serial"):
            raise ConfigError('config: "url" cannot be serial: this board has no port for it')
        link = vrt.use("vrt.links.serial").make(board.serial, config["message_bytes"], piece)
    else:
        from vrt.links.ws import WebSocketLink

        link = WebSocketLink(config["url"], config["message_bytes"], piece, ca=trusted(config["ca"]))
    from vrt.sound import Sound

    sound = Sound(board, config)
    from vrt.log import Log
    from vrt.tools.confirm import Confirm
    from vrt.tools.journal import Journal
    from vrt.tools.registry import Registry

    log = Log(board.event)
    journal = Journal(board.storage + "calls")
    tools = Registry(journal, Confirm(), event=log.event, voice=config["voice_confirm"])
    tools.load(board)
    vrt.once("vrt.tools.shelf").put(tools, board.storage + "tools.json")
    from vrt.app import App

    return App(board, config, link=link, sound=sound, tools=tools, journal=journal, log=log)


def trusted(path):
    # The certificates in that file, or None.
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f'config: "ca" cannot be read: {path} ({error})') from None
