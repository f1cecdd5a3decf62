# Updates while the device runs, on boards with two slots: a version on trial stays when it reaches its host in time, and what
# the host offers is taken once nobody needs the device. Allocates only when something happens.
from micropython import const

from vrt import diff, forget

_TRIAL_MS = const(180_000)  # from the start to `ready`; then the board goes back to what it had
_CALM_MS = const(30_000)  # without a turn, a call or sound, before the device starts again for an update


class Live:
    def __init__(self, slots, board, config, now):
        self.slots = slots
        self.board = board
        self.takes = bool(config["update_key"])
        self._began = self._busy = now
        self._seen = None  # the offer that was looked at

    def step(self, app, now):
        # Now and then, beside the rest. Does not return when the board starts again.
        slots, offer = self.slots, app.conversation.offer
        if slots.trial:
            if app.session.state == "open":
                app.log.event("update", state="stays", version=slots.trial)
                slots.confirm()
            elif diff(now, self._began) >= _TRIAL_MS:
                app.log.event("update", state="goes back", version=slots.trial)
                self._restart(app)
        elif offer and offer is not self._seen and self.takes:
            if app.conversation.active or app.tools.queue or app.sound.playing or app.session.state != "open":
                self._busy = now
            elif diff(now, self._busy) >= _CALM_MS:
                self._seen = offer
                from vrt.setup.fetch import wanted  # noqa: PLC0415

                if wanted(offer, slots):
                    self._restart(app)
                forget("vrt.setup.fetch", "vrt.setup.update")
        else:
            self._busy = now

    def _restart(self, app):
        self.board.safe()
        app.sound.close()
        self.board.restart()


make = Live  # for vrt.use
