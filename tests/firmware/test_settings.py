import json
import os

from support import raises
from vrt.setup import settings

OLD = {"url": "ws://host/", "wifi_ssid": "home", "token": "s3cret"}
NEW = {"url": "ws://host/", "wifi_ssid": "away", "token": "s3cret"}


class Flash:
    # A file system in memory, whose power is cut in the midst of the nth of its changes.
    def __init__(self, files, cut=-1):
        self.files = dict(files)
        self.left = cut

    def open(self, path, mode="r"):
        if mode == "r":
            if path not in self.files:
                raise OSError(2, "ENOENT")
            return Reading(self.files[path])
        self.tick()
        self.files[path] = ""
        return Writing(self, path)

    def rename(self, old, new):
        self.tick()
        self.files[new] = self.files.pop(old)

    def tick(self):
        if self.left == 0:
            raise Cut
        self.left -= 1

    def __enter__(self):
        settings.open, settings.os = self.open, self
        return self

    def __exit__(self, *error):
        del settings.open
        settings.os = os


class Cut(Exception):
    pass


class Reading:
    def __init__(self, text):
        self.text = text

    def read(self, n=-1):
        text, self.text = self.text if n < 0 else self.text[:n], "" if n < 0 else self.text[n:]
        return text

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Writing(Reading):
    def __init__(self, flash, path):
        self.flash = flash
        self.path = path

    def write(self, text):
        for character in text:
            self.flash.tick()
            self.flash.files[self.path] += character


def patched(function):
    # json of MicroPython reads and writes real streams only.
    kept = settings.json
    settings.json = Json
    try:
        return function()
    finally:
        settings.json = kept


class Json:
    @staticmethod
    def load(file):
        return json.loads(file.read())

    @staticmethod
    def dump(made, file):
        file.write(json.dumps(made))


def start(flash):
    # What a start finds, as build.py looks for it.
    try:
        return settings.read("/config.json")
    except (OSError, ValueError):
        return settings.recover("/config.json")


def test_a_change_is_written_and_the_copy_before_kept():
    def run():
        with Flash({"/config.json": json.dumps(OLD)}) as flash:
            assert settings.change("/config.json", {"wifi_ssid": "away"}) == NEW
            assert sorted(flash.files) == ["/config.json", "/config.old"]
            assert json.loads(flash.files["/config.json"]) == NEW
            assert json.loads(flash.files["/config.old"]) == OLD
            assert "token" not in settings.change("/config.json", {"token": None})
            assert json.loads(flash.files["/config.old"]) == NEW

    patched(run)


def test_a_power_cut_at_any_moment_leaves_the_old_or_the_new():
    def run():
        found = []
        for cut in range(1000):
            flash = Flash({"/config.json": json.dumps(OLD), "/config.old": "{}"}, cut)
            with flash:
                try:
                    settings.change("/config.json", {"wifi_ssid": "away"})
                    break
                except Cut:
                    flash.left = -1
                found.append(start(flash))
                assert found[-1] in (OLD, NEW), cut
                assert settings.change("/config.json", {"wifi_ssid": "away"}) == NEW
        assert 100 < len(found) < 999
        assert OLD in found

    patched(run)


def test_a_damaged_file_is_replaced_by_the_copy():
    whole = json.dumps(NEW)

    def run():
        for length in range(len(whole)):
            with Flash({"/config.json": whole[:length], "/config.old": json.dumps(OLD)}) as flash:
                assert start(flash) == OLD
                assert json.loads(flash.files["/config.json"]) == OLD
        with Flash({"/config.new": whole, "/config.old": json.dumps(OLD)}) as flash:
            assert start(flash) == NEW
        with Flash({"/config.json": "[]", "/config.new": whole[:9], "/config.old": json.dumps(OLD)}) as flash:
            assert start(flash) == OLD

    patched(run)


def test_a_damaged_file_is_no_copy_worth_having():
    def run():
        with Flash({"/config.json": "{", "/config.old": json.dumps(OLD)}) as flash:
            assert settings.change("/config.json", {"wifi_ssid": "away"}) == NEW
            assert json.loads(flash.files["/config.json"]) == NEW
        with Flash({"/config.json": "{"}):
            raises(ValueError, settings.recover, "/config.json")
        with Flash({"/config.old": json.dumps(OLD)}):
            assert settings.change("/config.json", {"wifi_ssid": "away"}) == NEW

    patched(run)


def test_settings_begin_without_a_file():
    def run():
        with Flash({}) as flash:
            raises(OSError, settings.recover, "/config.json")
            assert settings.change("/config.json", {"wifi_ssid": "home"}) == {"wifi_ssid": "home"}
            assert list(flash.files) == ["/config.json"]

    patched(run)


def test_real_files():
    path = "vrt-test-settings.json"
    try:
        settings.change(path, OLD)
        settings.change(path, {"wifi_ssid": "away"})
        assert settings.read(path) == NEW
        with open(path, "w") as file:
            file.write("{")
        assert settings.recover(path) == OLD
    finally:
        for ending in ("json", "old", "new"):
            try:  # noqa: SIM105  (no contextlib on MicroPython)
                os.remove("vrt-test-settings." + ending)
            except OSError:
                pass
