# What the device says of itself and of its calls at the ends of a session. Forgotten after each use.
import json

from vrt.tools.call import explain, output
from vrt.tools.journal import ARGUMENTS, CALL, DIGEST, EPOCH, NAME, RESULT, UNKNOWN, answer


def context(registry, state):
    # What the device reports (§5.5): the true state, by the user's state(), and what nobody knows since a restart.
    made = {}
    if state:
        try:
            made["state"] = json.loads(output(state()))
        except Exception as error:
            made["state"] = {"error": explain(error)}
    calls = unknown(registry.journal)
    if calls:
        made["unknownCalls"] = calls
    if registry.journal.damaged:
        made["journal"] = "damaged: calls may have run without a result"
    return made


def unknown(journal):
    # The calls that were started and whose outcome nobody knows: a list for `context`.
    return [
        {"callId": entry[CALL], "name": entry[NAME], "arguments": entry[ARGUMENTS]}
        for entry in journal.kept
        if entry[RESULT] is None
    ]


def settle(journal):
    # After a reboot and a resume: every kept result (the server ignores those it has, §7.2), and one for each call that
    # waited. Unknown is final now.
    journal.owed = journal.brief
    for entry in journal.kept:
        if entry[RESULT] is None:
            journal.done(entry[CALL], entry[DIGEST], entry[NAME], entry[EPOCH], UNKNOWN)
    journal.owed = ()
    return [answer(entry[CALL], entry[EPOCH], entry[RESULT]) for entry in journal.kept + journal.brief]
