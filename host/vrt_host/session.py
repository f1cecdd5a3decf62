"""The server side of one vRT session, without I/O and without a clock (vRT §4, §5).

A `Session` outlives connections and owns both numbered streams; a `Connection` (`connection.py`) is one link and
holds the table of §5.1. Times are seconds of any clock that never goes back (`now`, float). Nothing here raises
for a peer's fault; `LocalError` means that the caller broke the rules below.

**The server**, per link:

    connection = Connection(limits, now, wake=...)
    connection.receive_text(frame: str | bytes, now)    each text frame
    connection.receive_audio(frame: bytes, now)         each binary frame
    connection.heard(now)                               any other frame (a WebSocket ping or pong), for the heartbeat
    connection.receive_too_large(now)                   the link refused a frame by its size and closes with 1009
    connection.receive_eof(now)                         the link is gone: the session is parked
    connection.tick(now)                                at `connection.deadline` (float | None), or earlier

  After each of these, and whenever `wake()` was called, do three things in this order:

    for event in connection.events(): ...               Hello | Message | AudioFrame | Fault, each handed out once
    for frame in connection.data_to_send(): ...         str = a text frame, bytes = a binary frame
    connection.closing                                  None, or Close(code, reason): close the link after that data

  `wake()` is called from inside any method when there is something new to send, or when `closing` is set, outside
  the calls above (a turn manager sent a message; a newer link took the session over). It must only set a flag.
  The data waits in the connection until it is taken, so take it when the previous write is done; a peer that
  does not read is closed when more than `limits.waiting_bytes` wait.

  A `Hello` event is answered once, at once or later, by one of

    connection.accept(session, now) -> bool             a new session; sends `ready`
    connection.resume(session | None, principal, now) -> bool   None: the id is unknown. Does all of §5.4:
                                                        principal, expiry, what is still held; binds, sends `ready`,
                                                        resends, closes an older link with 4000; or RESUME_FAILED
    connection.refuse("UNAUTHORIZED" | "START_FAILED", message) -> None

  False means that nothing was bound: the link went away meanwhile, or the resume failed. A new session that was
  not accepted should be closed by the caller. Messages that came early are handed out as events after it.

**The turn manager**, per session:

    session = Session(session_id, principal, hello: Hello, *, input=..., output=..., capabilities=(...),
                      limits=Limits(), on_state=callback)
    session.send(type, **members) -> bool               numbers and keeps a sequenced server message, sends it when a
                                                        link is bound. False: the session is closed. Raises
                                                        TooLargeError (before it numbers) if the device's limit
                                                        (`session.peer.message_bytes`) would be exceeded
    session.room(type, **members) -> int | None         bytes left under that limit for more JSON text (negative: over);
                                                        None: the device announced no limit. See `wire.cut`
    session.error(code, message, recoverable=True) -> bool      a sequenced `error`
    session.start_audio(item_id, epoch, turn_id) -> bool        `audio.start`. False: no link is bound, nothing was sent
    session.send_audio(payload: bytes) -> bool          one frame of the current item. False: no link, or no
                                                        `audio.start` on this link yet (§8.3). Raises TooLargeError
                                                        above `session.peer.audio_bytes` (header included)
    session.close(code=1000, reason="")                 ends it; a bound link is closed after what waits is sent
    session.tick(now)                                   at `session.deadline` (float | None): the resume window
    session.state                                       State.CONNECTED | State.PARKED | State.CLOSED
    on_state(state)                                     called on each change, from inside whatever caused it

  `session.hello` is the opening Hello (`.message`, `.session_id`, `.resume_from`, `.token`), `session.peer` the
  limits the device announced (`PeerLimits`), `session.counters` what went wrong without stopping anything.

Client messages are handed out as `Message(message)` exactly once per session, in the order of the client stream:
`text`, `interrupt`, `playback`, `tool.result`, `context`, already checked against their schema, with `seq`, `epoch`
as ints. Acknowledgements, pings, duplicates and everything invalid are dealt with here and never seen outside,
except as a `Fault(code, text)` for the log.
"""
