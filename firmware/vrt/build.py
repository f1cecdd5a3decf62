# Makes the device from its board and configuration: the tools first, since reading their declarations takes much memory
# for a moment. What only the start needs is imported here and forgotten afterwards, so that its code does not fill the heap.
import sys

import vrt
from vrt.app import App
from vrt.errors import ConfigError
from vrt.links.ws import WebSocketLink
from vrt.log import Log
from vrt.sound import Sound
from vrt.tools.confirm import Confirm
from vrt.tools.journal import Journal
from vrt.tools.registry import Registry


def build(board, config):
    # The device. Raises ConfigError.
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
    app = App(board, config, link=link, sound=sound, tools=tools, journal=journal, log=log)
    for name in ("build", "config"):
        sys.modules.pop("vrt." + name, None)
        if hasattr(vrt, name):
            delattr(vrt, name)
    return app
