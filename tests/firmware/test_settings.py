import json
import os

from fake_flash import Cut, Flash
from support import raises
from vrt.setup import settings

OLD = {"url": "ws://host/", "wifi_ssid": "home", "token": "s3cret"}
NEW = {"url": "ws://host/", "wifi_ssid": "away", "token": "s3cret"}


def start(flash):
    # What a start finds, as build.py looks for it.
    try:
        return settings.read("/config.json")
    except (OSError, ValueError):
        return settings.recover("/config.json")


def test_a_change_is_written_and_the_copy_before_kept():
    with Flash(settings, {"/config.json": json.dumps(OLD)}) as flash:
        assert settings.change("/config.json", {"wifi_ssid": "away"}) == NEW
        assert sorted(flash.files) == ["/config.json", "/config.old"]
        assert json.loads(flash.files["/config.json"]) == NEW
        assert json.loads(flash.files["/config.old"]) == OLD
        assert "token" not in settings.change("/config.json", {"token": None})
        assert json.loads(flash.files["/config.old"]) == NEW


def test_a_power_cut_at_any_moment_leaves_the_old_or_the_new():
    found = []
    for cut in range(1000):
        flash = Flash(settings, {"/config.json": json.dumps(OLD), "/config.old": "{}"}, cut)
        with flash:
            try:
                settings.change("/config.json", {"wifi_ssid": "away"})
                break
            except Cut:
                flash.left = -1
            assert settings.read("/config.json") in (OLD, NEW)  # the file itself is whole
            found.append(start(flash))
            assert found[-1] in (OLD, NEW), cut
            assert settings.change("/config.json", {"wifi_ssid": "away"}) == NEW
    assert 100 < len(found) < 999
    assert OLD in found


def test_a_damaged_file_is_replaced_by_the_copy():
    whole = json.dumps(NEW)

    for length in range(len(whole)):
        with Flash(settings, {"/config.json": whole[:length], "/config.old": json.dumps(OLD)}) as flash:
            assert start(flash) == OLD
            assert json.loads(flash.files["/config.json"]) == OLD
    with Flash(settings, {"/config.new": whole, "/config.old": json.dumps(OLD)}) as flash:
        assert start(flash) == NEW
    with Flash(
        settings, {"/config.json": "[]", "/config.new": whole[:9], "/config.old": json.dumps(OLD)}
    ) as flash:
        assert start(flash) == OLD


def test_a_damaged_file_is_no_copy_worth_having():
    with Flash(settings, {"/config.json": "{", "/config.old": json.dumps(OLD)}) as flash:
        assert settings.change("/config.json", {"wifi_ssid": "away"}) == NEW
        assert json.loads(flash.files["/config.json"]) == NEW
    with Flash(settings, {"/config.json": "{"}):
        raises(ValueError, settings.recover, "/config.json")
    with Flash(settings, {"/config.old": json.dumps(OLD)}):
        assert settings.change("/config.json", {"wifi_ssid": "away"}) == NEW


def test_settings_begin_without_a_file():
    with Flash(settings, {}) as flash:
        raises(OSError, settings.recover, "/config.json")
        assert settings.change("/config.json", {"wifi_ssid": "home"}) == {"wifi_ssid": "home"}
        assert list(flash.files) == ["/config.json"]


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
