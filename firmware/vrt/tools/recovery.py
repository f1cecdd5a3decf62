# What a journal's file tells after a restart. Needed once, and forgotten by Registry.load.
import json
import os
from binascii import crc32
from errno import ENOENT

from vrt.tools.journal import CALL, UNKNOWN, head_of, trim


def recover(journal):
    # Fills an empty journal from its file.
    try:
        try:
            os.stat(journal.path)
        except OSError as error:
            if error.errno != ENOENT:
                raise
            os.rename(journal.path + ".new", journal.path)  # cut between FAT's two steps
        with open(journal.path, "rb") as file:
            _read(journal, file)
    except OSError as error:
        if error.errno != ENOENT:
            journal.damaged = True
    if journal.damaged:
        journal.session_id = None
        journal.size = -1


def _read(journal, file):
    size = file.seek(0, 2)
    at = 0
    while at < size:
        file.seek(at)
        head = file.read(4)
        sound = len(head) == 4 and head == head_of(head[1] | head[2] << 8)
        length = head[1] | head[2] << 8 if sound else 0
        if sound and at + length + 8 <= size:
            body = file.read(length)
            if file.read(4) == crc32(head + body).to_bytes(4, "little"):
                _take(journal, json.loads(body))
                at += length + 8
                continue
        elif not journal.damaged and (sound or len(head) < 4):
            size = -1  # cut short by a power cut: whole records before it, no more appended to it
            break
        journal.damaged = True
        at += 1
    journal.size = size


def _take(journal, record):
    session_id, tx, rx, epoch = record[:4]
    journal.mark(tx, rx, epoch)
    kept = journal.kept
    if session_id != journal.session_id:
        kept.clear()
        journal.session_id = session_id
    journal.brief = [
        [call_id, "", "", None, epoch, UNKNOWN] for calls in record[10:] for call_id, epoch in calls
    ]
    entry = record[4:10]
    for i, other in enumerate(kept):
        if other[CALL] == entry[CALL]:
            kept[i] = entry
            return
    kept.append(entry)
    trim(kept)
