# What calls have come to, so that none runs twice (vRT §7.2, design: "Journal"; field reports of calls repeated after a
# reconnect or reboot). Calls with an irreversible effect are kept in a flash file: `started` is on flash before the tool
# runs, `done` with the result before the result is sent. All other calls are kept in RAM only: after a reboot a
# reversible one may run again, which its absolute state makes harmless.
#
# File: records `A5 length(2, little endian) check payload crc32(4, little endian)`, payload JSON
#   [sessionId, client seq, server seq, observed epoch, callId, digest, name, arguments text, epoch, result text or null].
# The last record of a call counts. A power cut leaves a prefix of a record, which is dropped; anything else unreadable is
# damage: the records after it are found again, but the session is not resumed, because a call may be missing.
# Bounds: the last 10 calls of each kind, more than a device lets wait at once; of long results the oldest are let go when
# a kind takes more than 2 KiB. The file grows to 8 KiB, then what RAM has of it is written as PATH.new and renamed. FAT
# replaces in two steps; the next load finishes the second.
import json
import os
import sys
from binascii import crc32
from errno import ENOENT

from micropython import const

_MAGIC = const(0xA5)
_CALLS = const(10)
_KEPT_BYTES = const(2048)
_FILE_BYTES = const(8192)
_ARGUMENTS = const(256)  # characters of arguments worth keeping for the report of an unknown outcome

_CALL = const(0)
_DIGEST = const(1)
_NAME = const(2)
_ARGS = const(3)
_EPOCH = const(4)
_RESULT = const(5)

UNKNOWN = '{"ok":false,"code":"FAILED","message":"outcome unknown: the device restarted while it ran"}'
_GONE = '{"ok":false,"code":"FAILED","message":"answered before; the result is no longer kept"}'

# flush() reaches the medium on LittleFS, FAT and POSIX; ports with a cache in front of their storage have os.sync.
_sync = getattr(os, "sync", None) if sys.implementation.name == "micropython" else None


class Journal:
    def __init__(self, path, file_bytes=_FILE_BYTES):
        # `path`: the file, in a folder that exists. Reads it.
        self.path = path
        self._file_bytes = file_bytes
        self._spare = path + ".new"
        self.failures = 0  # writes that failed: a result that a reboot would not find
        self._forget()
        self._load()

    def _forget(self):
        self.session_id = (
            None  # of the calls kept; after a load, the session to resume, None if there is none
        )
        self.tx = (
            0  # last client seq given out, last server seq handled, observed epoch (-1: none); see `mark`
        )
        self.rx = 0
        self.epoch = -1
        self.damaged = False
        self._kept = []  # entries on flash and in RAM only, oldest first
        self._brief = []
        self._size = 0  # of the file; below 0: it cannot be appended to

    # --- the application

    def mark(self, tx, rx, epoch):
        # What a resume needs, noted with the next record.
        self.tx = tx
        self.rx = rx
        self.epoch = epoch

    def begin(self, session_id):
        # A new session: the calls of the one before, reported in its hello.context, are forgotten.
        stale = self._size
        self._forget()
        self.session_id = session_id
        for path in (
            (self._spare, self.path) if stale else ()
        ):  # a spare that is left alone is taken for the file
            try:
                os.remove(path)
            except OSError as error:
                if error.errno != ENOENT:
                    self._size = -1
                    return

    def unknown(self):
        # The calls that were started and whose outcome nobody knows: a list for `context`.
        return [
            {"callId": entry[_CALL], "name": entry[_NAME], "arguments": entry[_ARGS]}
            for entry in self._kept
            if entry[_RESULT] is None
        ]

    def settle(self):
        # After a reboot and a resume: every kept result (the server ignores those it has, §7.2). Unknown is final now.
        for entry in self._kept:
            if entry[_RESULT] is None:
                self.done(entry[_CALL], entry[_DIGEST], entry[_NAME], entry[_EPOCH], UNKNOWN)
        return [answer(entry[_CALL], entry[_EPOCH], entry[_RESULT]) for entry in self._kept]

    # --- the registry

    def find(self, call_id):
        # (digest, epoch, result text) of a call in this session, None when it is not kept.
        for entry in self._kept + self._brief:
            if entry[_CALL] == call_id:
                return entry[_DIGEST], entry[_EPOCH], entry[_RESULT] or UNKNOWN
        return None

    def started(self, call_id, digest, name, arguments, epoch):
        # On flash when it returns. OSError: it is not, and the tool must not run. `arguments` is JSON text.
        entry = [call_id, digest, name, arguments if len(arguments) <= _ARGUMENTS else None, epoch, None]
        self._kept.append(entry)
        _trim(self._kept)
        try:
            self._save(entry)
        except OSError:
            self._kept.remove(entry)
            raise

    def done(self, call_id, digest, name, epoch, result):
        # The call has its result (JSON text of {ok, ...}). On flash if `started` was.
        for entry in self._kept:
            if entry[_CALL] == call_id:
                entry[_RESULT] = result
                entry[_ARGS] = None
                try:
                    self._save(entry)
                except OSError:
                    self.failures += 1
                return
        self._brief.append([call_id, digest, name, None, epoch, result])
        _trim(self._brief)

    # --- the file

    def _record(self, entry):
        fields = [self.session_id, self.tx, self.rx, self.epoch]
        fields.extend(entry)
        body = json.dumps(fields).encode()
        record = _head(len(body)) + body
        return record + _crc(record)

    def _save(self, entry):
        # The newest state of an entry onto flash: appended, or with a new file.
        record = self._record(entry)
        if self._size < 0 or self._size + len(record) > self._file_bytes:
            self._compact()
            return
        try:
            _write(self.path, "ab", (record,))
        except OSError:
            self._size = -1  # it may end in half a record
            raise
        self._size += len(record)

    def _compact(self):
        records = [self._record(entry) for entry in self._kept]
        _write(self._spare, "wb", records)
        os.rename(self._spare, self.path)
        self._size = sum(len(record) for record in records)

    def _load(self):
        try:
            try:
                os.stat(self.path)
            except OSError as error:
                if error.errno != ENOENT:
                    raise
                os.rename(self._spare, self.path)  # cut between FAT's two steps
            with open(self.path, "rb") as file:
                self._read(file)
        except OSError as error:
            if error.errno != ENOENT:
                self.damaged = True
        if self.damaged:
            self.session_id = None
            self._size = -1

    def _read(self, file):
        size = file.seek(0, 2)
        at = 0
        while at < size:
            file.seek(at)
            head = file.read(4)
            sound = len(head) == 4 and head == _head(head[1] | head[2] << 8)
            length = head[1] | head[2] << 8 if sound else 0
            if sound and at + length + 8 <= size:
                body = file.read(length)
                if file.read(4) == _crc(head + body):
                    self._take(json.loads(body))
                    at += length + 8
                    continue
            elif not self.damaged and (sound or len(head) < 4):
                size = -1  # cut short by a power cut: whole records before it, no more appended to it
                break
            self.damaged = True
            at += 1
        self._size = size

    def _take(self, record):
        session_id, self.tx, self.rx, self.epoch = record[:4]
        if session_id != self.session_id:
            self._kept = []
            self.session_id = session_id
        entry = record[4:]
        for i, other in enumerate(self._kept):
            if other[_CALL] == entry[_CALL]:
                self._kept[i] = entry
                return
        self._kept.append(entry)
        _trim(self._kept)


def answer(call_id, epoch, result):
    # The members of a tool.result (§7.2) from its kept text.
    members = json.loads(result)
    members["callId"] = call_id
    members["epoch"] = epoch
    return members


def _trim(entries):
    # Within the bounds again after one more call, the last of them.
    if len(entries) > _CALLS:
        entries.pop(0)
    total = 0
    for entry in reversed(entries):
        total += sum(len(field) for field in entry if isinstance(field, str))
        if total > _KEPT_BYTES and entry is not entries[-1] and len(entry[_RESULT] or "") > len(_GONE):
            total += len(_GONE) - len(entry[_RESULT])
            entry[_RESULT] = _GONE


def _head(length):
    # A changed byte never leaves a valid head, so a short record can be told from a damaged one.
    low, high = length & 255, length >> 8
    return bytes((_MAGIC, low, high, (_MAGIC + 3 * low + 7 * high) & 255))


def _crc(data):
    return crc32(data).to_bytes(4, "little")


def _write(path, mode, records):
    with open(path, mode) as file:
        for record in records:
            file.write(record)
        file.flush()
    if _sync:
        _sync()
