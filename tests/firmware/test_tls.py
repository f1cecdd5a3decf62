# Whom the links trust.
import ssl
import sys

from certificates import AUTHORITY, STRANGER, der
from support import SkipTest, raises
from vrt.errors import ConfigError
from vrt.links import tls


def test_context_verifies_always():
    for ca in (
        AUTHORITY,
        AUTHORITY.encode(),
        bytearray(der(AUTHORITY)),
        "comment\n" + STRANGER + "\n\n" + AUTHORITY,
    ):
        assert tls.context(ca).verify_mode == ssl.CERT_REQUIRED


def test_pem_is_taken_apart():
    wanted = [der(STRANGER), der(AUTHORITY)]
    assert tls._certificates((STRANGER + AUTHORITY).encode()) == wanted
    assert tls._certificates((STRANGER + AUTHORITY).replace("\n", "\r\n").encode()) == wanted


def test_what_is_no_certificate_is_refused():
    for bad in (
        b"x",
        "text",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        AUTHORITY[:200],
    ):
        assert "PEM or DER" in str(raises(ConfigError, tls.context, bad))


def test_without_certificates_the_ports_own_count():
    if sys.implementation.name == "micropython":
        for nothing in (None, "", b""):
            assert "needs ca" in str(raises(ConfigError, tls.context, nothing))
        return

    class Context:
        def __init__(self, protocol):
            self.trusts = []

        def load_default_certs(self):
            self.trusts.append("the port's")

        def load_verify_locations(self, cadata):
            self.trusts.append(cadata)

    class Ssl:
        SSLContext = Context
        PROTOCOL_TLS_CLIENT = CERT_REQUIRED = 2

    sys.modules["ssl"] = Ssl  # type: ignore[assignment]
    try:
        assert tls.context(None).trusts == ["the port's"]
        assert tls.context(AUTHORITY).trusts == [der(AUTHORITY)]
    finally:
        sys.modules["ssl"] = ssl


def test_a_build_without_tls_is_told():
    if sys.implementation.name == "micropython":
        raise SkipTest("no way to hide a built-in module")
    hidden = sys.modules.pop("ssl")
    sys.modules["ssl"] = None
    try:
        assert "ws:// url" in str(raises(ConfigError, tls.context, AUTHORITY))
    finally:
        sys.modules["ssl"] = hidden
