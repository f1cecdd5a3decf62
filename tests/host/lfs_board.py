# A board's flash on MicroPython's unix port: a littlefs on a file is all of its file system, as on an ESP32.
#   micropython -i lfs_board.py IMAGE LOG START
# Every erase and write of the flash is kept in LOG: block (2 bytes), offset (2), length (2), data. START: "main" runs main.py, as after power on;
# "prompt" does not, as after a soft reset at the raw prompt.
import os
import sys

import vfs

_BLOCK = 4096


class Flash:
    # The extended block protocol, as the ESP32 port's partition.
    def __init__(self, image, log):
        self.image = open(image, "r+b")  # noqa: SIM115
        self.log = open(log, "ab")  # noqa: SIM115
        self.image.seek(0, 2)
        self.blocks = self.image.tell() // _BLOCK

    def readblocks(self, block, buf, offset=0):
        self.image.seek(block * _BLOCK + offset)
        self.image.readinto(buf)

    def writeblocks(self, block, buf, offset=0):
        self._write(block, offset, buf)

    def ioctl(self, op, arg):
        if op == 4:
            return self.blocks
        if op == 5:
            return _BLOCK
        if op == 6:
            self._write(arg, 0, b"\xff" * _BLOCK)
        return 0

    def _write(self, block, offset, data):
        self.image.seek(block * _BLOCK + offset)
        self.image.write(data)
        self.image.flush()
        n = len(data)
        self.log.write(bytes((block & 255, block >> 8, offset & 255, offset >> 8, n & 255, n >> 8)))
        self.log.write(data)
        self.log.flush()


_flash = Flash(sys.argv[1], sys.argv[2])
_start = sys.argv[3] == "main"
vfs.umount("/")
vfs.mount(vfs.VfsLfs2(_flash), "/")
os.chdir("/")
sys.path[:] = ["", ".frozen", "/lib"]
sys.modules.clear()
if _start:
    try:
        with open("main.py") as _file:
            _code = _file.read()
    except OSError:
        _code = ""
    try:
        exec(_code, {"__name__": "__main__"})
    except SystemExit:
        print("\x1cagain\x1c", end="")  # a soft reset, says ports/esp32/main.c; the relay makes it
