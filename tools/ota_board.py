# A board's flash for tools/bench_update.py, on MicroPython: a littlefs on a file, whose power can be cut at any write.
#   micropython tools/ota_board.py IMAGE CUT new FOLDER        format, and copy the firmware in FOLDER to slot a
#   micropython tools/ota_board.py IMAGE CUT install BUNDLE KEYFILE    take the update
#   micropython tools/ota_board.py IMAGE CUT boot|confirm      start what is there; `confirm`: the firmware is content with itself
# CUT: the number of the write or erase at which the power goes, 0: none; a minus before it: half of that write is done.
# Prints the number of writes; at a cut the process ends with code 9.
# mypy: ignore-errors
# ruff: noqa: PLC0415, SIM115  (the modules come before the flash is the only file system; the power ends, not a block)
import os
import sys

import vfs

_here = sys.path[0] or "."
_BLOCK = 4096
_BLOCKS = 256


class Flash:
    # The extended block protocol, as the ESP32 port's partition: erased bytes are FF, a write only clears bits.
    def __init__(self, path, cut):
        self.file = open(path, "r+b")
        self.cut = abs(cut)
        self.torn = cut < 0
        self.count = 0

    def readblocks(self, block, buf, offset=0):
        self.file.seek(block * _BLOCK + offset)
        self.file.readinto(buf)

    def writeblocks(self, block, buf, offset=0):
        self._write(block * _BLOCK + offset, buf)

    def ioctl(self, op, arg):
        if op == 4:
            return _BLOCKS
        if op == 5:
            return _BLOCK
        if op == 6:
            self._write(arg * _BLOCK, b"\xff" * _BLOCK)
        return 0

    def _write(self, at, data):
        self.count += 1
        last = self.count == self.cut
        if last and not self.torn:
            self._off()
        self.file.seek(at)
        self.file.write(memoryview(data)[: len(data) // 2] if last else data)
        if last:
            self._off()

    def _off(self):
        self.file.flush()
        sys.exit(9)


def copy(source, target):
    os.mkdir(target)
    for name in os.listdir(source):
        inner = source + "/" + name
        if os.stat(inner)[0] & 0x4000:
            copy(inner, target + "/" + name)
        else:
            with open(inner, "rb") as file:
                content = file.read()
            with open(target + "/" + name, "wb") as file:
                file.write(content)


def run(flash, action, *words):
    sys.path.insert(0, _here + "/../firmware")
    if action == "new":
        vfs.VfsLfs2.mkfs(flash)
    vfs.mount(vfs.VfsLfs2(flash), "/flash")
    if action == "new":
        copy(words[0], "/flash/a")
        return
    import slots
    from vrt.setup import update

    if action == "install":
        bundle = open(words[0], "rb")
        with open(words[1]) as file:
            key = file.read()
        os.chdir("/flash")
        update.install(bundle.read, key, "sim", "1.0.0", slots)
    else:
        os.chdir("/flash")
        slots.boot()
        if action == "confirm":
            slots.confirm()


def main():
    path, cut = sys.argv[1:3]
    flash = Flash(path, int(cut))
    run(flash, *sys.argv[3:])
    vfs.umount("/flash")
    flash.file.close()
    print("writes", flash.count)


main()
