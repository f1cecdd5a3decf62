# Writes the journal (see journal.py) to flash: before and after a call with an irreversible effect, and is forgotten in between.
import json
from binascii import crc32

from vrt.tools.journal import CALL, EPOCH, head_of


def save(journal, entry, open, os):
    # The newest state of an entry, appended or with a new file. `open` and `os`: of the flash.
    path, mode, entries, size = journal.path, "ab", (entry,), journal.size
    if size < 0 or size + len(_record(journal, entry)) > journal.file_bytes:
        path, mode, entries, size = path + ".new", "wb", journal.kept, 0
    journal.size = -1  # when this fails, the file may end in half a record
    with open(path, mode) as file:
        for one in entries:
            record = _record(journal, one)
            file.write(record)
            size += len(record)
        file.flush()
    if hasattr(os, "sync"):  # flush reaches the medium on LittleFS, FAT and POSIX; other ports have a cache
        os.sync()
    if mode == "wb":
        os.rename(path, journal.path)
    journal.size = size


def _record(journal, entry):
    fields = [journal.session_id, journal.tx, journal.rx, journal.epoch]
    fields.extend(entry)
    calls = [(call.call_id, call.epoch) for call in journal.queue if call.call_id != entry[CALL]]
    calls.extend([(one[CALL], one[EPOCH]) for one in journal.owed])
    fields.append(calls)
    record = json.dumps(fields).encode()
    record = head_of(len(record)) + record
    return record + crc32(record).to_bytes(4, "little")
