# The epoch gate (vRT §6.1, §6.2): which turns are dead. Nothing of a closed epoch starts or is played.
from micropython import const

NONE = const(-1)  # below every epoch: nothing observed, nothing closed


class Epoch:
    def __init__(self):
        self.reset()

    def reset(self):
        # A new session: its epochs start at 0 again.
        self.observed = NONE
        self.closed = NONE  # an epoch at or below is closed

    def observe(self, epoch):
        # An epoch was seen in `turn.state`, `audio.start` or `tool.call`, whether or not it is closed by now.
        self.observed = max(self.observed, epoch)

    def close(self, epoch):
        # Closes everything up to `epoch`, also epochs not observed yet. False: it was closed before (no effect).
        if epoch <= self.closed:
            return False
        self.closed = epoch
        return True

    def close_observed(self):
        # The user interrupts: closes all that was observed. The epoch for `interrupt`, or NONE when nothing was open.
        return self.observed if self.close(self.observed) else NONE
