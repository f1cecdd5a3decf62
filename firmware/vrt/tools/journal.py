# What calls have come to, so that none runs twice (vRT §7.2, design: "Journal"; field reports of calls repeated after a
# reconnect or reboot). Calls with an irreversible effect are kept in a flash file: `started` is on flash before the tool
# runs, `done` with the result before the result is sent. All other calls are kept in RAM only: after a reboot a
# reversible one may run again, which its absolute state makes harmless.
#
# File: records `A5 length(2, little endian) check payload crc32(4, little endian)`, payload JSON
#   [sessionId, client seq, server seq, observed epoch, callId, digest, name, arguments text, epoch, result text or null,
#    [[callId, epoch] of each other call that waits]].
# The last record of a call counts, and of these lists the last. A power cut leaves a prefix of a record, which is dropped; anything else unreadable is
# damage: the records after it are found again, but the session is not resumed, because a call may be missing.
# Bounds: the last 10 calls of each kind, more than a device lets wait at once; of long results the oldest are let go when
# a kind takes more than 2 KiB. The file grows to 8 KiB, then what RAM has of it is written as PATH.new and renamed. FAT
# replaces in two steps; the next load finishes the second.
import json
import os
from errno import ENOENT

from micropython import const

from vrt import once

_MAGIC = const(0xA5)
_CALLS = const(10)
_KEPT_BYTES = const(2048)
_FILE_BYTES = const(8192)
_KEPT_ARGUMENTS = const(256)  # characters of arguments worth keeping for the report of an unknown outcome

CALL = const(0)
DIGEST = const(1)
NAME = const(2)
ARGUMENTS = const(3)
EPOCH = const(4)
RESULT = const(5)

UNKNOWN = '{"ok":false,"code":"FAILED","message":"outcome unknown: the device restarted while it ran"}'
_GONE = const('{"ok":false,"code":"FAILED","message":"answered before; the result is no longer kept"}')


class Journal:
    def __init__(self, path, file_bytes=_FILE_BYTES):
        # `path`: the file, in a folder that exists. Reads it.
        from vrt.tools.recovery import recover  # noqa: PLC0415  (forgotten by Registry.load)

        self.path = path
        self.file_bytes = file_bytes
        self.size = 0  # of the file; below 0: it cannot be appended to
        self.queue = self.owed = ()  # calls without a result: the registry's, and those of before a reboot
        self.begin(None)
        recover(self)

    def begin(self, session_id):
        # A new session: the calls of the one before, reported in its hello.context, are forgotten.
        # session_id: of the calls kept; after a load, the session to resume, None if there is none.
        self.session_id = session_id
        self.mark(0, 0, -1)
        self.damaged = False
        self.kept = []  # entries on flash and in RAM only, oldest first
        self.brief = []
        stale, self.size = self.size, 0
        for path in (
            (self.path + ".new", self.path) if stale else ()
        ):  # a spare left alone is taken for the file
            try:
                os.remove(path)
            except OSError as error:
                if error.errno != ENOENT:
                    self.size = -1
                    return

    # --- the application

    def mark(self, tx, rx, epoch):
        # What a resume needs, noted with the next record: last client seq given out, last server seq handled, observed
        # epoch (-1: none).
        self.tx = tx
        self.rx = rx
        self.epoch = epoch

    # --- the registry

    def find(self, call_id):
        # (digest, epoch, result text) of a call in this session, None when it is not kept.
        for entry in self.kept + self.brief:
            if entry[CALL] == call_id:
                return entry[DIGEST], entry[EPOCH], entry[RESULT] or UNKNOWN
        return None

    def started(self, call_id, digest, name, arguments, epoch):
        # On flash when it returns. OSError: it is not, and the tool must not run. `arguments` is JSON text.
        entry = [call_id, digest, name, arguments if len(arguments) <= _KEPT_ARGUMENTS else None, epoch, None]
        self.kept.append(entry)
        trim(self.kept)
        try:
            self._save(entry)
        except OSError:
            self.kept.remove(entry)
            raise

    def done(self, call_id, digest, name, epoch, result):
        # The call has its result (JSON text of {ok, ...}). On flash if `started` was.
        for entry in self.kept:
            if entry[CALL] == call_id:
                entry[RESULT] = result
                entry[ARGUMENTS] = None
                try:  # noqa: SIM105  (no contextlib)
                    self._save(entry)
                except (OSError, MemoryError):  # a reboot will report its outcome as unknown
                    pass
                return
        self.brief.append([call_id, digest, name, None, epoch, result])
        trim(self.brief)

    # --- the file

    def _save(self, entry):
        # The newest state of an entry onto flash.
        once("vrt.tools.saving").save(self, entry, open, os)


def answer(call_id, epoch, result):
    # The members of a tool.result (§7.2) from its kept text.
    members = json.loads(result)
    members["callId"] = call_id
    members["epoch"] = epoch
    return members


def trim(entries):
    # Within the bounds again after one more call, the last of them.
    if len(entries) > _CALLS:
        entries.pop(0)
    total = 0
    for entry in reversed(entries):
        for field in entry:
            if isinstance(field, str):
                total += len(field)
        if total > _KEPT_BYTES and entry is not entries[-1] and len(entry[RESULT] or "") > len(_GONE):
            total += len(_GONE) - len(entry[RESULT])
            entry[RESULT] = _GONE


def head_of(length):
    # A changed byte never leaves a valid head, so a short record can be told from a damaged one.
    low, high = length & 255, length >> 8
    return bytes((_MAGIC, low, high, (_MAGIC + 3 * low + 7 * high) & 255))
