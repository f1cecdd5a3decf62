"""What can happen to a pair besides what is said: faults of the wire and of both ends, and the user's hand and voice."""


class Events:
    """Each method is an event; `Pair` has them all."""

    def happen(self, name, *values):
        getattr(self, "_" + name)(*values)

    def _nothing(self):
        pass

    # --- the user

    def _press(self, ms):
        self.device.down_since = self.wire.now
        self.run(ms)
        self.device.down_since = None
        self.run(40)

    def _confirm(self):
        """Whatever asks within two seconds."""
        for _ in range(20):
            if self.device.app.tools.confirm.asking:
                self._press(1400)
                break
            self.run(100)

    def _press_late(self):
        """The agent has begun a newer response when the host hears of the press."""
        self.wire.line.up.hold(400)
        self._press(60)
        if self.host.agent is not None:
            self.host.agent.begin()
            self.host.agent.perform([("say", 1)], False)

    def _voice(self):
        """Begins or ceases to speak."""
        self.device.voice = not self.device.voice
        self.run(40)

    def _type(self, kind, count):
        session = self.device.app.session
        for _ in range(count):
            if session.state == "open":
                session.offer(kind, f"{kind} {self.number()}")

    # --- the wire

    def _cut(self, up, down, up_ms, down_ms):
        self.wire.line.up.cut(up, up_ms)
        self.wire.line.down.cut(down, down_ms)

    def _die(self, ways, ms, up, down, up_ms, down_ms):  # noqa: PLR0917  (drawn in this order)
        """Some ways stall while both sides go on; then the line is cut with all that this has held up."""
        for way in ways:
            self._pipe(way).hold(ms + 1)
        self._type("text", 1)
        self.run(ms)
        self._cut(up, down, up_ms, down_ms)

    def _stall(self, way, ms):
        self._pipe(way).hold(ms)

    def _lose_acks(self, way):
        self._pipe(way).deaf = True

    def _copy(self, way, age):
        self._pipe(way).repeat(age)

    def _junk(self, way, frame):
        self._pipe(way).write(frame)

    def _unreachable(self, ms):
        self.wire.reachable_at = self.wire.now + ms

    def _pipe(self, way):
        return getattr(self.wire.line, way)

    # --- the ends

    def _unknown(self, way):
        """A side says what the other one does not know."""
        if way == "up":
            self.device.send_unknown()
        elif self.host.agent is not None:
            self.host.agent.send_unknown()

    def _restart_device(self, kept, ms):
        self.wire.line.up.cut(kept, ms)
        self.device.boot()

    def _crash(self, tool, kept, ms):
        """The device restarts while a tool runs that takes half a second and more."""
        if self.host.agent is not None:
            self.host.agent.begin()
            self.host.agent.perform([("call", tool)], True)
            for _ in range(10):
                self.run(100)
                if self.witness.begun:
                    self._restart_device(kept, ms)
                    break

    def _fail_power(self, steps):
        """The device restarts once it has taken so many steps at writing its flash."""
        self.device.disk.steps = self.device.disk.taken + steps

    def _restart_host(self, gracefully):
        if gracefully:
            self.host.stop()
        self.wire.line.down.cut(1 << 30 if gracefully else 0, 0)
        self.wire.line.up.cut(0, None)
        self.host.boot()

    def _fail_agent(self, recoverable):
        if self.host.agent is not None:
            self.host.agent.fail(recoverable)

    def _refuse(self, ms):
        """No new session starts for a while."""
        self.host.starts_at = self.wire.now + ms

    def _jump(self, side, ms):
        getattr(self, side).skew_ms += ms
