# The gesture that takes the Wi-Fi's name and password off the device: the button held for ten seconds while nobody is heard and
# nothing goes on, from the press on. The LED warns in between; letting go, or speaking, ends it.
from micropython import const

from vrt import diff

_WARN_MS = const(3000)
_HOLD_MS = const(10_000)
_UP_MS = const(20_000)  # for the button to come up again, which would stop the next start


class Forget:
    def __init__(self, board):
        self.board = board
        self._since = None  # ticks at which the holding began
        self._other = False  # it is for something else: something went on when it began, or since

    def step(self, app, now):
        # What the LED is to show, or "".
        conversation, mic = app.conversation, app.sound.mic
        heard = mic is not None and mic.live and mic.voiced
        heard = heard or conversation.turn == "listening"  # by the host
        engaged = bool(conversation.active or app.tools.queue or app.sound.playing or heard)
        down = conversation.button.down
        if engaged or not down:
            self._other = engaged  # a press that stops something is seen here when it has stopped already
            self._since = None
        if self._other or not down:
            return ""
        if self._since is None:
            self._since = now
        held = diff(now, self._since)
        if held >= _HOLD_MS:
            self._since = None
            self._forget(app)
        return "forget" if held >= _WARN_MS else ""

    def _forget(self, app):
        # Does not return on a board that can restart.
        from vrt.setup.settings import change  # noqa: PLC0415

        path = self.board.storage + "config.json"
        none = {"wifi_ssid": None, "wifi_password": None}
        try:
            change(path, none)
            change(path, none)  # now the copy is without them as well
        except OSError as error:
            app.log.fault("CONFIG", f"config.json cannot be written ({error})")
            return
        app.log.event("wifi", state="forgotten")
        self.board.safe()
        app.sound.close()
        self.board.led("setup")
        for _ in range(_UP_MS // 100):
            if not self.board.button():
                break
            self.board.wait(None, 100)
        self.board.restart()
