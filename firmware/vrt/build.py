# Makes the device from its board and configuration. Only the start needs this, and it is forgotten afterwards, so that its
# code does not fill the heap.
# ruff: noqa: PLC0415  (nothing large is imported before it is known that the device shall start)
import gc
import sys
import time

import vrt
from vrt.config import checked
from vrt.errors import ConfigError


def start(board):
    # The device, or None when it was stopped. Raises ConfigError.
    config = checked(board.config(), board.DESCRIPTION["duplex"])
    if cancelled(board, config["safe_boot_ms"]):
        return None
    # While the code comes in, what it leaves behind is collected often: so it packs closely, and the rest of the heap stays
    # in one piece for the buffers.
    if hasattr(gc, "threshold"):
        gc.threshold(gc.mem_free() // 32)
    app = build(board, config)
    if hasattr(gc, "threshold"):
        gc.threshold(-1)
    for name in ("vrt.build", "vrt.config"):
        sys.modules.pop(name, None)
        if hasattr(vrt, name[4:]):
            delattr(vrt, name[4:])
    return app


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
    # The tools come first, since reading their declarations takes much memory for a moment.
    from vrt.app import App
    from vrt.links.ws import WebSocketLink
    from vrt.log import Log
    from vrt.sound import Sound
    from vrt.tools.confirm import Confirm
    from vrt.tools.journal import Journal
    from vrt.tools.registry import Registry

    ca = None
    if config["ca"]:
        try:
            with open(config["ca"], "rb") as file:
                ca = file.read()
        except OSError as error:
            raise ConfigError(f'config: "ca" cannot be read: {config["ca"]} ({error})') from None
    log = Log(board.event)
    journal = Journal(board.storage + "calls")
    tools = Registry(journal, Confirm(), report=log.report, voice=config["voice_confirm"])
    tools.load(board)
    size = config["message_bytes"]
    link = WebSocketLink(config["url"], size, size, ca=ca)
    sound = Sound(board, config)
    return App(board, config, link=link, sound=sound, tools=tools, journal=journal, log=log)
