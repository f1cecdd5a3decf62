"""Tokens: the file and who it lets in."""

import hashlib
import json
import logging
import os
import stat

import pytest
from vrt_host.auth import ANONYMOUS, Authenticator, TokenFile
from vrt_host.errors import UsageError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "tokens.json"


def test_token_is_random_and_only_its_hash_is_stored(path):
    file = TokenFile(path)
    one, two = file.add("one"), file.add("two")
    assert one != two
    assert len(one) >= 43
    text = path.read_text()
    assert one not in text
    assert hashlib.sha256(one.encode()).hexdigest() in text


@pytest.mark.skipif(os.name != "posix", reason="file modes need POSIX")
def test_file_is_for_its_owner_alone(path):
    TokenFile(path).add("one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["tokens.json"]


@pytest.mark.parametrize("name", ["", "a b", "-a", "é", "x" * 65, "a\n", "../a"])
def test_name_that_cannot_be_one_is_refused(path, name):
    with pytest.raises(UsageError, match="cannot be a name"):
        TokenFile(path).add(name)
    assert not path.exists()


def test_name_is_given_once(path):
    file = TokenFile(path)
    file.add("one")
    with pytest.raises(UsageError, match="revoke it first"):
        file.add("one")


def test_revoke_of_a_stranger_is_an_error(path):
    file = TokenFile(path)
    file.add("one")
    with pytest.raises(UsageError, match="no token named 'two'"):
        file.revoke("two")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "tokens": {}}',
        '{"version": 1, "tokens": []}',
        '{"version": 1, "tokens": {"a": {"sha256": "12"}}}',
        '{"version": 1, "tokens": {"a": null}}',
        '{"version": 1, "tokens": {"a b": {"sha256": "' + "0" * 64 + '"}}}',
        "[" * 100_000,
        "\xff",
    ],
)
def test_file_that_is_no_tokens_file_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "tokens.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError) as caught:
        Authenticator(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_is_refused_with_the_command_that_makes_one(path):
    with pytest.raises(UsageError, match="vrt token add"):
        Authenticator(path)


def test_unwritable_folder_is_one_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        TokenFile(blocked / "tokens.json").add("one")


def test_host_without_tokens_lets_everybody_in_as_one():
    auth = Authenticator(None)
    assert not auth.required
    assert auth.authenticate(None) == auth.authenticate("anything") == ANONYMOUS


def test_token_names_its_principal_and_nothing_else_does(path):
    file = TokenFile(path)
    one, two = file.add("one"), file.add("two")
    auth = Authenticator(path)
    assert auth.authenticate(one) == "one"
    assert auth.authenticate(two) == "two"
    for wrong in (None, "", "one", one[:-1], one + "x", " " + one, "\ud800", "x" * 100_000):
        assert auth.authenticate(wrong) is None
    assert auth.authenticate(json.loads(path.read_text())["tokens"]["one"]["sha256"]) is None


def test_changes_take_effect_without_a_restart(path):
    file = TokenFile(path)
    one = file.add("one")
    auth = Authenticator(path)
    two = file.add("two")
    assert auth.authenticate(two) == "two"
    file.revoke("one")
    assert auth.authenticate(one) is None
    assert not auth.knows("one", one)
    assert auth.knows("two", two)


def test_file_that_became_unreadable_lets_nobody_in_until_it_is_mended(path, caplog):
    one = TokenFile(path).add("one")
    good = path.read_text()
    auth = Authenticator(path)
    path.write_text("oops")
    with caplog.at_level(logging.ERROR):
        assert auth.authenticate(one) is None
    assert "nobody can connect" in caplog.text
    path.unlink()
    assert auth.authenticate(one) is None
    path.write_text(good)
    assert auth.authenticate(one) == "one"


@pytest.mark.skipif(os.name != "posix", reason="file modes need POSIX")
def test_file_that_others_can_write_is_warned_about(path, caplog):
    TokenFile(path).add("one")
    path.chmod(0o666)
    Authenticator(path)
    assert "chmod 600" in caplog.text


def test_principal_is_known_by_its_token_as_long_as_it_has_that_one(path):
    file = TokenFile(path)
    old = file.add("kitchen")
    authenticator = Authenticator(path)
    assert authenticator.knows("kitchen", old)
    file.revoke("kitchen")
    new = file.add("kitchen")
    authenticator.reload()
    assert not authenticator.knows("kitchen", old)
    assert not authenticator.knows("kitchen", None)
    assert authenticator.knows("kitchen", new)
    assert Authenticator(None).knows("", None)
