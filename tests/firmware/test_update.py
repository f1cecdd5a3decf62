# An update from a bundle to the other slot: what is taken, what is refused, and that a refusal changes nothing.
import os
import sys

import slots
from signed import KEY, bundle
from support import raises
from vrt.setup import update

FILES = {
    "main.py": b"print('new')\n",
    "vrt/__init__.py": b"",
    "vrt/links/ws.py": bytes(range(256)) * 9,
    "board.json": b"{}",
}
_folder = (
    (os.getenv("TMPDIR") or "/tmp") + "/vrt-update-" + "".join([f"{byte:02x}" for byte in os.urandom(6)])
)
_home = os.getcwd()


class Stream:
    # A bundle that comes in order, and ends when it ends.
    def __init__(self, data):
        self.data = data
        self.at = 0

    def read(self, n):
        if self.at + n > len(self.data):
            raise OSError("the host closed the connection")
        self.at += n
        return self.data[self.at - n : self.at]


def flash(state=None):
    # An empty flash with a firmware in a/.
    os.chdir(_home)
    update.remove(_folder)
    os.mkdir(_folder)
    os.chdir(_folder)
    os.mkdir("a")
    with open("a/main.py", "w") as file:
        file.write("print('old')\n")
    if state:
        with open("slot", "w") as file:
            file.write(state)


def done():
    os.chdir(_home)
    update.remove(_folder)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def install(data, version="1.0.0", board="sim", key=KEY):
    return update.install(Stream(data).read, key, board, version, slots)


def refused(data, words, **running):
    flash()
    error = raises(ValueError, install, data, **running)
    assert words in str(error), error
    assert slots.read() == ("a", "", "")
    assert content("a/main.py") == b"print('old')\n"
    done()


def test_update_is_written_beside_the_running_one_and_tried_next():
    flash()
    assert install(bundle(FILES)) == "9.0.0"
    assert slots.read() == ("b", "?", "9.0.0")
    for path, data in FILES.items():
        assert content("b/" + path) == data, path
    assert content("a/main.py") == b"print('old')\n"
    done()


def test_update_replaces_all_that_the_other_slot_held():
    flash("b ")
    os.mkdir("a/vrt")
    with open("a/vrt/stale.py", "w") as file:
        file.write("old")
    install(bundle(FILES))
    assert sorted(os.listdir("a/vrt")) == ["__init__.py", "links"]
    assert slots.read() == ("a", "?", "9.0.0")
    done()


def test_update_signed_by_nobody_we_know_is_refused():
    data = bytearray(bundle(FILES))
    data[20] ^= 1
    refused(bytes(data), "signature")
    other = "%x" % (int(KEY, 16) + 2)
    refused(bundle(FILES), "signature", key=other)


def test_update_whose_signature_is_above_the_modulus_is_refused():
    data = bundle(FILES)
    number = int.from_bytes(data[6:262], "big") + int(KEY, 16)
    if number >> 2048 == 0:
        refused(data[:6] + number.to_bytes(256, "big") + data[262:], "signature")
    assert not update.signed(b"", b"\xff" * 256, int(KEY, 16))


def test_update_whose_manifest_was_changed_is_refused():
    data = bundle(FILES)
    for at in (270, 300, 400):
        changed = bytearray(data)
        changed[at] ^= 1
        refused(bytes(changed), "signature")


def test_update_whose_file_was_changed_is_refused():
    data = bytearray(bundle(FILES))
    data[-1] ^= 1
    refused(bytes(data), "is not what was signed")


def test_update_for_another_board_is_refused():
    refused(bundle(FILES, board="bread-compact-s3"), "for the board bread-compact-s3")


def test_update_that_is_not_newer_is_refused():
    refused(bundle(FILES, version="1.0.0"), "not newer", version="1.0.0")
    refused(bundle(FILES, version="1.9.9"), "not newer", version="1.10.0")
    refused(bundle(FILES, version="soon"), "")


def test_update_compiled_for_another_micropython_is_refused():
    refused(bundle(FILES, mpy=12345), "another MicroPython")


def test_update_compiled_for_this_micropython_is_taken():
    flash()
    install(bundle(FILES, mpy=getattr(sys.implementation, "_mpy", 0)))
    done()


def test_update_that_writes_elsewhere_is_refused():
    for path in ("../config.json", "/config.json", "vrt//x.py", "vrt/../../x.py", ".hidden", "vrt/"):
        refused(bundle({path: b"x"}), "is no name")


def test_update_with_too_many_or_too_large_files_is_refused():
    refused(bundle({f"f{number}.py": b"" for number in range(129)}), "more than 128 files")
    refused(
        bundle(FILES, change={"files": [["x.py", 1 << 20, "00"], ["y.py", 1, "00"]]}), "more than 128 files"
    )


def test_update_with_a_huge_manifest_is_refused_before_it_is_read():
    data = bundle(FILES)
    refused(data[:262] + b"\x7f\xff\xff\xff" + data[266:], "the manifest is larger")


def test_what_is_no_update_is_refused():
    refused(b"<html>404</html>" * 30, "no update")


def test_update_that_ends_early_changes_nothing():
    data = bundle(FILES)
    for n in range(0, len(data), 97):
        flash()
        raises(OSError, install, data[:n])
        assert slots.read() == ("a", "", "")
        assert content("a/main.py") == b"print('old')\n"
        done()


def test_update_while_one_is_tried_is_refused():
    flash("b! 8.0.0")
    error = raises(ValueError, install, bundle(FILES))
    assert "being tried" in str(error)
    assert slots.read() == ("b", "!", "8.0.0")
    done()


def test_newer_compares_numbers():
    assert update.newer("0.10.0", "0.9.9")
    assert update.newer("1.0", "0.9.9")
    assert not update.newer("0.1.0", "0.1.0")
    raises(ValueError, update.newer, "1.x", "1.0")
