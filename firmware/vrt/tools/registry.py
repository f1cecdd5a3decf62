# The device's tools: what is declared, which call runs, and its one result (vRT §6.2, §7; decisions 8, 16-18).
#
#   confirm = Confirm(); journal = Journal(board.storage + "calls")
#   registry = Registry(journal, confirm, report=board.event, voice=False)
#   registry.load(board)               once, before hello: imports the user's module `tools`, calls its setup(board)
#   registry.declare() -> list         for hello.tools       registry.queue_limit -> hello.limits.queuedCalls
#   registry.context() -> dict         for hello.context and `context`: {"state": ..., "unknownCalls": [...]}
#
#   registry.begin(session_id)         `ready` of a new session: forgets the session before it
#   registry.resumed()                 `ready` with resumedFrom, first one after a reboot: answers from the journal.
#                                      (A resume without a reboot needs no call here.)
#       after a reboot, hello takes journal.session_id (None: open a new session) and resumeFrom = journal.rx;
#       the stream goes on at ready.resumedFrom + 1: all that is resent are results, and they get new numbers
#   registry.drop()                    the session is lost (RESUME_FAILED ...): ends the running call, no results
#
#   journal.mark(tx, rx, epoch)        whenever they changed, before call() and step(): last client seq given out,
#                                      last server seq handled, observed epoch; a few stores, no flash
#   registry.call(msg, now)            a valid tool.call (decoded dict); ask `registry.room` first: False = stop reading
#   registry.close_epoch(closed)       the closed epoch rose, by interruption or `interrupted` (before sending anything)
#   registry.step(now, down)           every loop; `down` is the button's debounced level; advances at most one tool
#   registry.next_result() -> dict     members of the next tool.result (callId, epoch, ok, ...), None when there is none
#
#   registry.asking                    a call awaits the button: LED "confirm"; the button is ours until it is up again,
#                                      local voice detection does not interrupt while nothing is played
#   registry.busy                      a call is running, asking or queued
#   registry.uncertain                 a call with an effect was cut or failed: send `context`, then set it to False
#
# Nothing here is on the audio path; all of it may allocate. One loop calls it; no interrupt handler may.
