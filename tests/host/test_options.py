"""agents/options.py: what an agent is told by a file and the environment, and what is refused."""

from typing import Any, ClassVar

import pytest
from pydantic import Field, SecretStr, field_validator
from vrt_host.agents.options import Options, checked_url, load, shown
from vrt_host.errors import UsageError


class Some(Options):
    secrets: ClassVar[dict[str, tuple[str, ...]]] = {"api_key": ("SOME_KEY", "OTHER_KEY")}
    model: str
    api_key: SecretStr | None = None
    speed: float = Field(1.0, gt=0)
    words: list[str] = Field(default_factory=list)
    extra: dict[str, Any] = Field(default_factory=dict)
    url: str | None = None

    @field_validator("url")
    @classmethod
    def _url(cls, url):
        return None if url is None else checked_url(url, ["https", "http"], insecure=False)


class Keyed(Some):
    api_key: SecretStr


def read(tmp_path, text='[some]\nmodel = "m"\n', kind=Some, **environ):
    path = tmp_path / "agents.toml"
    path.write_text(text)
    return load(kind, "some", path, agents=["other"], environ=environ)


def refused(tmp_path, text='[some]\nmodel = "m"\n', kind=Some, **environ):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text, kind, **environ)
    (line,) = str(caught.value).splitlines()
    return line


def test_file_gives_the_options(tmp_path):
    found = read(
        tmp_path, '[some]\nmodel = "m"\nspeed = 2\nwords = ["a"]\n[some.extra]\nn = 1\n[other]\nx = 1\n'
    )
    assert (found.model, found.speed, found.words, found.extra) == ("m", 2.0, ["a"], {"n": 1})


def test_environment_replaces_the_file(tmp_path):
    found = read(tmp_path, VRT_SOME_MODEL="007", VRT_SOME_SPEED="3.5", VRT_SOME_WORDS='["b"]')
    assert (found.model, found.speed, found.words) == ("007", 3.5, ["b"])
    assert load(Some, "some", None, environ={"VRT_SOME_MODEL": "e"}).model == "e"


def test_secret_comes_from_the_first_variable_that_is_set(tmp_path):
    assert shown(read(tmp_path, OTHER_KEY=" k2 \n").api_key) == "k2"
    assert shown(read(tmp_path, SOME_KEY="k1", OTHER_KEY="k2").api_key) == "k1"
    assert shown(read(tmp_path).api_key) == ""
    assert "k1" not in repr(read(tmp_path, SOME_KEY="k1"))


def test_secret_comes_from_a_file_beside_the_options(tmp_path):
    (tmp_path / "key").write_text("k3\n")
    text = '[some]\nmodel = "m"\napi_key_file = "key"\n'
    assert shown(read(tmp_path, text, SOME_KEY="k1").api_key) == "k3"
    (tmp_path / "key2").write_text("k4", "utf-8-sig")
    assert shown(read(tmp_path, text, VRT_SOME_API_KEY_FILE="key2").api_key) == "k4"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "alone"),
        (b"two words", "alone"),
        (b"two words".replace(b" ", b"\0"), "ASCII"),
        ("zwei wörter".encode(), "ASCII"),
        (b"\xff", "not text"),
        (None, "cannot be read"),
    ],
)
def test_secret_file_that_holds_no_secret_is_refused(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    line = refused(tmp_path, '[some]\nmodel = "m"\napi_key_file = "key"\n')
    assert "api_key_file" in line
    assert reason in line
    assert "two words" not in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[some]\n", ["[some]", "model is missing", "VRT_SOME_MODEL"]),
        ('[some]\nmodel = "m"\napi_key = "sk-oh"\n', ["api_key does not belong", "api_key_file", "SOME_KEY"]),
        ('[some]\nmodle = "m"\n', ["'modle'", "did you mean 'model'"]),
        ('[somex]\nmodel = "m"\n', ["no agent 'somex'", "did you mean 'some'"]),
        ('[some]\nmodel = "m"\nspeed = "fast-as-sk-oh"\n', ["speed: "]),
        ('[some]\nmodel = "m"\nspeed = -1\n', ["speed: ", "greater than 0"]),
        ('[some]\nmodel = "m"\nspeed = -1\nwords = 1\n', ["and 1 more"]),
        ("some = 1\n", ["has to be a table"]),
        ("[some\n", ["is not TOML"]),
        ('[some]\nmodel = "m"\nurl = "http://example.org"\n', ["url: http is not encrypted", "insecure"]),
    ],
)
def test_what_is_wrong_is_one_line_that_shows_no_value(tmp_path, text, words):
    line = refused(tmp_path, text)
    assert "agents.toml" in line
    for word in words:
        assert word in line
    assert "sk-oh" not in line


@pytest.mark.parametrize(
    "secret", ["k1 k2", "k1\nk2", "SOME_KEY = k1", "k1\x7f", "\ufeffk1", "k1\N{CYRILLIC SMALL LETTER A}"]
)
def test_secret_of_the_environment_that_is_none_is_refused(tmp_path, secret):
    line = refused(tmp_path, OTHER_KEY=secret)
    assert line.startswith("OTHER_KEY has to hold the secret alone")
    assert "k1" not in line


def test_missing_secret_says_where_it_goes(tmp_path):
    line = refused(tmp_path, kind=Keyed)
    assert "SOME_KEY or OTHER_KEY" in line
    assert "api_key_file" in line


def test_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load(Some, "some", tmp_path / "none.toml", environ={})


@pytest.mark.parametrize(
    "url", ["https://x.org/v1/", "http://127.0.0.1:1/v1", "http://localhost/v1", "http://[::1]:8080/v1"]
)
def test_address_is_taken(url):
    assert checked_url(url, ["https", "http"], insecure=False) == url.rstrip("/")


def test_address_that_is_not_encrypted_needs_a_word(tmp_path):
    with pytest.raises(ValueError, match="another machine"):
        checked_url("tcp://192.168.1.5:10300", ["tcp"], insecure=False)
    assert checked_url("tcp://192.168.1.5:10300", ["tcp"], insecure=True)


@pytest.mark.parametrize(
    "url", ["x.org", "ftp://x.org", "https://", "https://u:p@x.org", "https://x.org?key=1", "https://x.org#a"]
)
def test_address_that_is_none_or_has_a_secret_in_it_is_refused(url):
    with pytest.raises(ValueError, match=r"address") as caught:
        checked_url(url, ["https", "http"], insecure=True)
    assert "u:p" not in str(caught.value)


def test_address_of_a_plain_server_needs_its_port():
    with pytest.raises(ValueError, match="port"):
        checked_url("tcp://127.0.0.1", ["tcp"], insecure=False)
