# The device's event log, on its way to the board. Secrets never come here: no token, no whole session id.


class Log:
    def __init__(self, event):
        self.event = event  # event(name, **fields)
        self.asked = None  # the call whose confirmation was asked for

    def fault(self, code, message=""):
        self.event("error", code=code, message=message)

    def report(self, event, **fields):
        # What the tools' registry tells, in the words of the log. Every call ends with a `result`.
        call = fields["call"]
        if event == "call.ask":
            self.asked = call
            self.event("confirm_asked", **fields)
        elif event == "call.start":
            if call == self.asked:
                self.asked = None
                self.event("confirm", call=call, outcome="confirmed")
            self.event("call_start", **fields)
        elif event == "call.progress":
            self.event("progress", **fields)
        elif event == "call.end":
            result = fields["result"]
            code = result.get("code")
            if call == self.asked:
                self.asked = None
                self.event("confirm", call=call, outcome=code, message=result.get("message"))
            self.event("result", call=call, name=fields["name"], ok=result["ok"], code=code, result=result)
