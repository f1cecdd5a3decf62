# The part of a start that only boards with Wi-Fi have. Forgets itself at its end.
# ruff: noqa: PLC0415  (what is not needed is not imported)
import sys

from vrt import forget
from vrt.errors import ConfigError


class Air:
    def __init__(self, board, settings):
        # settings(board): what config.json says; raises ConfigError.
        self.board = board
        self.wifi = None  # until begin(), and when the link is another
        self._settings = settings

    def begin(self):
        # Whoever has no credentials waits here for somebody to give some. False: the button stopped it.
        try:
            config = self._settings(self.board)
        except ConfigError:  # told later, when at least there is a network
            config = {}
        if not isinstance(config, dict) or config.get("url") == "serial:":
            return True
        from vrt.links.wifi import Wifi

        board = self.board
        ssid, password = config.get("wifi_ssid") or "", config.get("wifi_password") or ""
        self.wifi = Wifi(board.wlan(), ssid, password, board.event, clock=getattr(board, "clock", None))
        return ssid or self._onboard()

    def join(self, config):
        # Whether the device shall go on: with Wi-Fi, or without.
        if not self.wifi:
            return True
        self.wifi.tls = config["url"].startswith("wss:")
        self.wifi.ntp = config["ntp"]
        return self._onboard()

    def ready(self):
        # Whether there is a network, as far as it is ours to say.
        return not self.wifi or self.wifi.up

    def adopt(self, app):
        # From now on the App has it.
        if self.wifi:
            from vrt.setup.forget import Forget

            self.wifi.event = app.log.event
            self.wifi.forget = Forget(self.board)  # pyright: ignore[reportAttributeAccessIssue]
            app.wifi = self.wifi
        forget("vrt.setup.air")

    def _onboard(self):
        from vrt.setup.onboard import onboard

        going = onboard(self.board, self.wifi)
        forget("vrt.setup.onboard")
        for name in ("vrt.setup.improv", "vrt.setup.settings"):
            if name in sys.modules:
                forget(name)
        return going


make = Air  # for vrt.use
