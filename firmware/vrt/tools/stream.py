# What a display may show of calls while they come about (vRT §7.5, tool-stream-v1): events `tool_stream` of the log. Nothing runs
# because of them. Imported only when the configuration asks for it. Of each call come `start`, what follows in its order, and one
# end; what comes out of order, again, or after the end is not shown. With an epoch all its calls are cancelled at once.
from micropython import const

from vrt.tools.arguments import canonical

_CALLS = const(8)  # shown at once; others are not


class Streams:
    def __init__(self, event):
        self._event = event
        self.calls = []  # [callId, name, epoch, its arguments are complete] of those that have not ended

    def take(self, message):
        # A valid tool.stream of an open epoch.
        phase = message["phase"]
        member = {"arguments-delta": "delta", "arguments-complete": "arguments", "failed": "message"}
        member = member.get(phase, phase)
        call = None
        for one in self.calls:
            if one[0] == message["callId"]:
                call = one
        if phase == "start":
            if call or len(self.calls) >= _CALLS:
                return
            call = [message["callId"], message["name"], message["epoch"], False]
            self.calls.append(call)
        elif not call:
            return
        elif phase in ("settled", "cancelled", "failed"):
            self.calls.remove(call)
        elif (phase == "progress") != call[3]:
            return
        elif phase == "arguments-complete":
            call[3] = True
        fields = {}
        if member in message:
            fields[member] = message[member]
            try:
                canonical(message[member])
            except ValueError as error:  # the log is JSON, and 1e999 is not
                fields[member] = str(error)
        if phase == "settled":
            fields = {"ok": message["ok"], "code": message.get("code")}
        self._event("tool_stream", call=call[0], name=call[1], phase=phase, **fields)

    def close(self, session):
        # Epochs have closed, or the session is over.
        for call in list(self.calls):
            if session.id is None or call[2] <= session.closed:
                self.calls.remove(call)
                self._event("tool_stream", call=call[0], name=call[1], phase="cancelled")


make = Streams  # for vrt.use
