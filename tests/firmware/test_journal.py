# The journal under power cuts: at every byte, at every step of its file system, and on real LittleFS and FAT.
import json
import os
import sys
from errno import ENOENT

from support import SkipTest, raises
from vrt import use
from vrt.tools import journal as journal_module
from vrt.tools.journal import UNKNOWN, Journal, answer
from vrt.tools.report import settle, unknown

ENOSPC = 28  # MicroPython's errno does not name it


def ok(n):
    return json.dumps({"ok": True, "output": n})


def makes_much_garbage():
    # A test that needs the collector says so first.
    if getattr(sys.implementation, "_build", "") == "wasi":
        raise SkipTest("the WASI build's collector frees what is still in use")


class PowerCut(Exception):
    pass


class Disk:
    # Files in memory in place of the journal module's `open` and `os`. After `steps` (written bytes and changes of the
    # directory) the power fails. `two_steps`: a rename removes the target first, as on FAT.
    def __init__(self, files=None, steps=None, two_steps=False):
        self.files = dict(files or {})
        self.steps = steps
        self.two_steps = two_steps
        self.full = False
        self.broken = False
        self.taken = 0
        self.changes = []  # the steps that changed the directory

    def __enter__(self):
        from vrt.tools import recovery  # noqa: PLC0415  (it may have left the heap since the last time)

        self._modules = (journal_module, recovery)
        self._os = journal_module.os
        self._once = journal_module.once
        journal_module.once = use  # what writes is not read anew for each of thousands of records
        for module in self._modules:
            module.os = self
            module.open = self.open
        return self

    def __exit__(self, *error):
        journal_module.once = self._once
        for module in self._modules:
            module.os = self._os
            module.open = open

    def step(self):
        if self.taken == self.steps:
            raise PowerCut
        self.changes.append(self.taken)
        self.taken += 1

    def _there(self, path):
        if self.broken:
            raise OSError(5, "input or output")
        if path not in self.files:
            raise OSError(ENOENT, "no such file")

    def stat(self, path):
        self._there(path)

    def remove(self, path):
        self._there(path)
        self.step()
        del self.files[path]

    def rename(self, old, new):
        self._there(old)
        if self.two_steps and new in self.files:
            self.remove(new)
        self.step()
        self.files[new] = self.files.pop(old)

    def open(self, path, mode):
        if mode == "rb":
            self._there(path)
        elif mode == "wb" or path not in self.files:
            self.step()
            self.files[path] = b""
        return File(self, path)


class File:
    def __init__(self, disk, path):
        self.disk = disk
        self.path = path
        self.at = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def seek(self, at, whence=0):
        self.at = len(self.disk.files[self.path]) if whence == 2 else at
        return self.at

    def read(self, n):
        data = self.disk.files[self.path][self.at : self.at + n]
        self.at += len(data)
        return data

    def write(self, data):
        disk = self.disk
        done = len(data) if disk.steps is None else min(len(data), disk.steps - disk.taken)
        disk.files[self.path] += data[:done]
        disk.taken += done
        if disk.full:
            disk.files[self.path] = disk.files[self.path][: -len(data) // 2]
            raise OSError(ENOSPC, "no space")
        if done < len(data):
            raise PowerCut

    def flush(self):
        pass


def run_calls(journal, count, log, first=0, flash=None):
    # What the registry does for calls with an irreversible effect; `log`: call -> how far it came.
    for i in range(first, first + count):
        call_id = f"call-{i}"
        journal.mark(10 + i, 20 + i, 3)
        log[call_id] = "asked"
        journal.started(call_id, f"digest-{i}", "lock", '{"door":"front"}', 3)
        log[call_id] = "ran"
        journal.done(call_id, f"digest-{i}", "lock", 3, ok(i))
        if flash and flash.dead:
            raise PowerCut
        log[call_id] = "answered"


def check(journal, log, damaged=False):
    # Nothing that ran may run again; nothing but the true result may be told.
    for call_id, reached in log.items():
        found = journal.find(call_id)
        n = int(call_id.split("-")[1])
        if found:
            digest, epoch, result = found
            assert (digest, epoch) == (f"digest-{n}", 3)
            assert result == ok(n) or (result == UNKNOWN and (damaged or reached != "answered")), (
                call_id,
                reached,
                result,
            )
        else:
            assert reached == "asked" or damaged, (call_id, reached)


def test_journal_without_a_file_is_empty():
    with Disk():
        journal = Journal("/calls")
        assert (journal.session_id, journal.tx, journal.rx, journal.epoch) == (None, 0, 0, -1)
        assert not journal.damaged
        assert unknown(journal) == []
        assert settle(journal) == []
        assert journal.find("call-0") is None


def test_restart_finds_the_result_and_what_a_resume_needs():
    with Disk():
        journal = Journal("/calls")
        journal.begin("session-1")
        run_calls(journal, 2, {})
        journal = Journal("/calls")
        assert (journal.session_id, journal.tx, journal.rx, journal.epoch) == ("session-1", 11, 21, 3)
        assert journal.find("call-1") == ("digest-1", 3, ok(1))
        assert unknown(journal) == []
        assert settle(journal) == [
            {"callId": "call-0", "epoch": 3, "ok": True, "output": 0},
            {"callId": "call-1", "epoch": 3, "ok": True, "output": 1},
        ]


def test_restart_while_a_tool_ran_leaves_its_outcome_unknown():
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("session-1")
        journal.mark(4, 9, 2)
        journal.started("call-0", "digest-0", "lock", '{"door":"front"}', 2)
        journal = Journal("/calls")
        assert unknown(journal) == [{"callId": "call-0", "name": "lock", "arguments": '{"door":"front"}'}]
        assert journal.find("call-0") == ("digest-0", 2, UNKNOWN)
        (result,) = settle(journal)
        assert (result["callId"], result["ok"], result["code"]) == ("call-0", False, "FAILED")
        assert "outcome unknown" in result["message"]
        for again in (journal, Journal("/calls")):
            assert unknown(again) == [], "the server has been told"
            assert again.find("call-0")[2] == UNKNOWN
        assert list(disk.files) == ["/calls"]


def test_reversible_calls_stay_off_the_flash():
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("session-1")
        journal.done("call-0", "digest-0", "light", 3, ok(0))
        assert disk.files == {}
        assert journal.find("call-0") == ("digest-0", 3, ok(0))


def test_new_session_forgets_the_one_before():
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("session-1")
        run_calls(journal, 1, {})
        journal.done("call-9", "digest-9", "light", 3, ok(9))
        journal.begin("session-2")
        assert disk.files == {}
        assert journal.find("call-0") is None
        assert journal.find("call-9") is None
        assert Journal("/calls").session_id is None


def test_new_session_touches_no_flash_when_nothing_is_kept():
    with Disk(steps=0):
        journal = Journal("/calls")
        journal.begin("session-1")
        journal.begin("session-2")


def test_record_cut_at_every_length_is_dropped():
    makes_much_garbage()
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("session-1")
        log = {}
        run_calls(journal, 2, log)
        whole = disk.files["/calls"]
    for length in range(len(whole)):
        with Disk({"/calls": whole[:length]}):
            journal = Journal("/calls")
            assert not journal.damaged, length
            assert journal.session_id == ("session-1" if journal.find("call-0") else None)
            found = journal.find("call-1")
            assert not found or journal.find("call-0") == ("digest-0", 3, ok(0))
            # It goes on working, and what it then says survives too.
            if journal.session_id is None:
                journal.begin("session-1")
            log = {}
            run_calls(journal, 1, log, first=5)
            journal = Journal("/calls")
            check(journal, log)
            assert not journal.damaged, length


def test_changed_byte_is_damage_and_never_a_wrong_answer():
    makes_much_garbage()
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("session-1")
        log = {}
        run_calls(journal, 2, log)
        whole = disk.files["/calls"]
    for at in range(len(whole)):
        for change in (0x01, 0x80, 0xFF):
            data = whole[:at] + bytes((whole[at] ^ change,)) + whole[at + 1 :]
            with Disk({"/calls": data}):
                journal = Journal("/calls")
                assert journal.damaged, (at, change)
                assert journal.session_id is None, "a call may be missing: no resume"
                check(journal, log, damaged=True)
                assert any(journal.find(call_id) for call_id in log), "the records around it are found"
                journal.begin("session-2")
                assert not journal.damaged
                run_calls(journal, 1, {})
                assert Journal("/calls").session_id == "session-2"


def test_junk_is_damage():
    for length in (1, 3, 4, 8, 60, 300):
        data = bytes([i * i * 167 + 13 * i & 255 for i in range(length)])
        with Disk({"/calls": data}):
            journal = Journal("/calls")
            assert journal.damaged == (length > 3), "less than a head may be a cut one"
            assert unknown(journal) == []
    with Disk({"/calls": b""}):
        assert not Journal("/calls").damaged


def run_until_cut(steps, two_steps):
    # Five calls, which fill the small file several times over; then the next start. Returns the disk of the first part.
    log = {}
    with Disk(steps=steps, two_steps=two_steps) as disk:
        try:
            journal = Journal("/calls", 500)
            journal.begin("session-1")
            run_calls(journal, 5, log)
        except PowerCut:
            assert steps is not None
    with Disk(disk.files, two_steps=two_steps):
        journal = Journal("/calls", 500)
        assert not journal.damaged, steps
        assert journal.session_id == "session-1" or log in ({}, {"call-0": "asked"}), (steps, log)
        check(journal, log)
        if journal.session_id is None:
            journal.begin("session-1")
        run_calls(journal, 2, log, first=10)
        journal = Journal("/calls", 500)
        check(journal, log)
        assert not journal.damaged, steps
    return disk


def test_power_cut_at_every_step():
    makes_much_garbage()
    # The directory's steps all, the bytes in between by fives (every byte: the test above).
    for two_steps in (False, True):
        disk = run_until_cut(None, two_steps)
        assert disk.taken > 1000
        assert len(disk.changes) > 6
        cuts = list(range(0, disk.taken, 5))
        for change in disk.changes:
            cuts.extend((change, change + 1))
        for steps in cuts:
            run_until_cut(steps, two_steps)


def test_power_cut_while_a_session_is_forgotten():
    for steps in range(3):
        with Disk() as disk:
            journal = Journal("/calls", 300)
            journal.begin("session-1")
            run_calls(journal, 3, {})
            disk.files["/calls.new"] = disk.files["/calls"][:100]  # left by a cut while it was written
            disk.taken, disk.steps = 0, steps
            try:
                journal.begin("session-2")
            except PowerCut:
                assert steps < 2
            disk.steps = None
            journal = Journal("/calls", 300)
            assert not journal.damaged
            if steps == 2:
                assert journal.session_id is None, "the forgotten session came back"
            else:
                check(journal, {"call-2": "answered"})


def test_rename_in_two_steps_is_finished():
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("session-1")
        run_calls(journal, 1, {})
        disk.files["/calls.new"] = disk.files.pop("/calls")
        journal = Journal("/calls")
        assert journal.find("call-0") == ("digest-0", 3, ok(0))
        assert list(disk.files) == ["/calls"]


def test_half_written_new_file_is_ignored():
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("session-1")
        run_calls(journal, 1, {})
        disk.files["/calls.new"] = b"\xa5\x99"
        journal = Journal("/calls")
        assert not journal.damaged
        assert journal.find("call-0")


def test_full_disk_refuses_the_start():
    with Disk() as disk:
        journal = Journal("/calls", 400)
        journal.begin("session-1")
        run_calls(journal, 1, {})
        disk.full = True
        raises(OSError, journal.started, "call-1", "digest-1", "lock", "{}", 3)
        assert journal.find("call-1") is None
        disk.full = False
        run_calls(journal, 1, {}, first=2)
        journal = Journal("/calls", 400)
        assert not journal.damaged
        assert unknown(journal) == []
        assert journal.find("call-2")


def test_result_that_cannot_be_written_is_still_known_until_the_restart():
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("session-1")
        journal.started("call-0", "digest-0", "lock", "{}", 3)
        disk.full = True
        journal.done("call-0", "digest-0", "lock", 3, ok(0))
        assert journal.find("call-0")[2] == ok(0)
        assert Journal("/calls").find("call-0")[2] == UNKNOWN


def test_unreadable_file_is_damage():
    with Disk({"/calls": b""}) as disk:
        disk.broken = True
        journal = Journal("/calls")
        assert journal.damaged
        assert journal.session_id is None


def test_file_and_memory_are_bounded():
    makes_much_garbage()
    with Disk() as disk:
        journal = Journal("/calls")
        journal.begin("s" * 36)
        largest = 0
        for i in range(100):
            result = json.dumps({"ok": True, "output": "x" * (i * 37 % 1000)})
            journal.started(f"call-{i}", "0" * 16, "lock", json.dumps("a" * 300), 3)
            journal.done(f"call-{i}", "0" * 16, "lock", 3, result)
            journal.done(f"brief-{i}", "0" * 16, "light", 3, result)
            assert journal.find(f"call-{i}")[2] == journal.find(f"brief-{i}")[2] == result
            largest = max(largest, len(disk.files["/calls"]))
        assert 4000 < largest <= 8192
        for kind in ("call", "brief"):
            found = [journal.find(f"{kind}-{i}") for i in range(100)]
            assert [i for i in range(100) if found[i]] == list(range(90, 100))
            texts = [one[2] for one in found if one]
            assert sum(len(text) for text in texts) < 4000
            assert "no longer kept" in texts[0], "it will not run again, though its result is gone"
        again = Journal("/calls")
        assert [i for i in range(100) if again.find(f"call-{i}")] == list(range(90, 100))
        assert again.find("call-99") == journal.find("call-99")


def test_single_long_record_fits():
    with Disk():
        journal = Journal("/calls", 1000)
        journal.begin("s" * 256)
        result = json.dumps({"ok": True, "output": "ä" * 1000})
        for i in range(3):
            journal.started("c" * 250 + str(i), "0" * 16, "lock", "{}", 3)
            journal.done("c" * 250 + str(i), "0" * 16, "lock", 3, result)
        journal = Journal("/calls", 1000)
        assert not journal.damaged
        assert journal.find("c" * 250 + "2")[2] == result


def test_answer_is_a_fresh_copy():
    first = answer("call-0", 3, '{"ok":true,"output":{"a":1}}')
    first["output"]["a"] = 2
    assert answer("call-0", 3, '{"ok":true,"output":{"a":1}}')["output"] == {"a": 1}


def remove_if_there(path):
    try:
        os.remove(path)
    except OSError as error:
        if error.errno != ENOENT:
            raise


def test_journal_on_the_file_system_of_this_runtime():
    name = "vrt-journal-test"
    remove_if_there(name)
    remove_if_there(name + ".new")
    try:
        journal = Journal(name, 500)
        journal.begin("session-1")
        log = {}
        try:
            run_calls(journal, 1, log)
        except OSError:
            raise SkipTest("no file system that can be written") from None
        run_calls(journal, 9, log, first=1)
        assert os.stat(name)[6] <= 500 + 16 * 200
        check(Journal(name, 500), log)
    finally:
        remove_if_there(name)


class Flash:
    # A block device whose power fails after so many writes, in the middle of one when `torn`.
    def __init__(self, data, block, writes, torn):
        self.data = bytearray(data)
        self.block = block
        self.writes = writes
        self.torn = torn
        self.taken = 0
        self.dead = False

    def readblocks(self, n, buf, off=0):
        at = n * self.block + off
        buf[:] = memoryview(self.data)[at : at + len(buf)]

    def writeblocks(self, n, buf, off=0):
        if self.dead:  # what its driver still wants to write when files are closed
            return
        at = n * self.block + off
        if self.taken == self.writes:
            self.dead = True
            if self.torn:
                self.data[at : at + len(buf) // 2] = memoryview(buf)[: len(buf) // 2]
            raise PowerCut
        self.taken += 1
        self.data[at : at + len(buf)] = buf

    def ioctl(self, op, argument):
        if op == 4:
            return len(self.data) // self.block
        if op == 5:
            return self.block
        return 0


def _survive_cuts_on(kind, block, blocks, torn):
    try:
        import vfs  # noqa: PLC0415  (MicroPython only)

        make = getattr(vfs, kind)
    except (ImportError, AttributeError):
        raise SkipTest("no " + kind + " on this runtime") from None
    flash = Flash(bytes(block * blocks), block, -1, False)
    make.mkfs(flash)
    fresh = bytes(flash.data)
    writes = 0
    damaged = 0
    done = False
    while not done:
        flash = Flash(fresh, block, writes, torn)
        log = {}
        try:
            vfs.mount(make(flash), "/cut")
            journal = Journal("/cut/calls", 700)
            journal.begin("session-1")
            run_calls(journal, 5, log, flash=flash)
            done = True
        except (PowerCut, OSError):  # OSError: from closing a file on the dead device
            assert flash.dead
        finally:
            vfs.umount("/cut")
        flash = Flash(flash.data, block, -1, False)
        vfs.mount(make(flash), "/cut")
        try:
            journal = Journal("/cut/calls", 700)
            damaged += journal.damaged
            check(journal, log, journal.damaged)
            assert journal.damaged <= torn, writes
            journal.begin("session-2")
            log = {}
            run_calls(journal, 2, log)
            check(Journal("/cut/calls", 700), log)
        finally:
            vfs.umount("/cut")
        writes += 1
    assert writes > 20
    return damaged


def test_power_cut_at_every_write_of_littlefs():
    assert _survive_cuts_on("VfsLfs2", 512, 64, False) == 0


def test_power_cut_within_every_write_of_littlefs():
    assert _survive_cuts_on("VfsLfs2", 512, 64, True) == 0


def test_power_cut_at_every_write_of_fat():
    assert _survive_cuts_on("VfsFat", 512, 128, False) == 0


def test_power_cut_within_every_write_of_fat():
    _survive_cuts_on("VfsFat", 512, 128, True)
