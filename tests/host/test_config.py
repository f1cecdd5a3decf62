"""What the operator decides."""

import pytest
from self_signed import key_bytes, self_signed
from vrt_host.config import ServerConfig, is_loopback
from vrt_host.errors import UsageError


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """A certificate, its key, another key, and a key with a passphrase."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("two", "one"):
        *_, key = self_signed(folder, name)
    (folder / "locked.key").write_bytes(key_bytes(key, b"x"))
    return folder


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_loopback_needs_nothing(host):
    assert is_loopback(host)
    assert ServerConfig(host=host).scheme == "ws"


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.168.1.2", "example.com", "127.0.0.1.evil.example"]
)
def test_other_addresses_need_tls_and_tokens_or_a_word_of_consent(host, pem, tmp_path):
    tls = {"tls_cert": pem / "one.pem", "tls_key": pem / "one.key"}
    for given in ({}, tls, {"tokens": tmp_path / "t"}):
        with pytest.raises(UsageError, match="--insecure"):
            ServerConfig(host=host, **given)
    assert ServerConfig(host=host, insecure=True).tls is None
    assert ServerConfig(host=host, tokens=tmp_path / "t", **tls).scheme == "wss"


def test_certificate_and_key_belong_together(pem):
    with pytest.raises(UsageError, match="--tls-key"):
        ServerConfig(tls_cert=pem / "one.pem")
    with pytest.raises(UsageError, match="--tls-cert"):
        ServerConfig(tls_key=pem / "one.key")
    with pytest.raises(UsageError, match="not a certificate and its key"):
        ServerConfig(tls_cert=pem / "one.pem", tls_key=pem / "two.key")


def test_key_with_a_passphrase_is_refused_and_does_not_ask(pem):
    with pytest.raises(UsageError, match="passphrase"):
        ServerConfig(tls_cert=pem / "one.pem", tls_key=pem / "locked.key")


def test_missing_or_broken_pem_file_is_named(pem, tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the TLS key .*nothing.key"):
        ServerConfig(tls_cert=pem / "one.pem", tls_key=tmp_path / "nothing.key")
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(UsageError, match=r"junk\.pem"):
        ServerConfig(tls_cert=tmp_path / "junk.pem", tls_key=pem / "one.key")


@pytest.mark.parametrize("port", [-1, 65536, 1_000_000])
def test_port_out_of_range_is_refused(port):
    with pytest.raises(UsageError, match="0 to 65535"):
        ServerConfig(port=port)


@pytest.mark.parametrize(
    "origin",
    [
        "example.com",
        "*",
        "https://",
        "https://a/b",
        "https://a?b",
        "ws://a",
        "null",
        "http://[x",
        "https://a:99999",
        "https://a:0",
        # Browsers write none of these, so that it would let nobody in.
        "htTps://a.example",
        "https://A.example",
        " https://a.example",
        "https://a.example:443",
        "http://a.example:80",
        "https://a:",
        "https://user@a",
        "https://a b",
        "https://a.example/",
    ],
)
def test_origin_that_is_none_is_refused(origin):
    with pytest.raises(UsageError, match="is not an origin"):
        ServerConfig(origins=(origin,))


def test_origins_are_taken():
    assert ServerConfig(
        origins=("https://a.example", "http://localhost:3000", "https://[::1]:80", "http://a_b.c-d:443")
    ).origins
