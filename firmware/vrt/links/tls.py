# TLS for the links: one context, made at start-up, that verifies the host, always.
import binascii

from vrt.errors import ConfigError

_BEGIN = b"-----BEGIN CERTIFICATE-----"


def context(ca):
    # ca: certificates to trust, PEM (text or bytes, any number of them) or one in DER; None: those that the
    # port brings, if it does. Raises ConfigError.
    try:
        import ssl  # noqa: PLC0415  (it costs memory, and not every build has it)
    except ImportError:
        raise ConfigError("this MicroPython has no TLS: use a ws:// url, or a build with ssl") from None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.verify_mode = ssl.CERT_REQUIRED
    if ca:
        try:
            for certificate in _certificates(ca.encode() if isinstance(ca, str) else bytes(ca)):
                made.load_verify_locations(cadata=certificate)
        except (ValueError, OSError):
            raise ConfigError("ca must be a certificate in PEM or DER form") from None
    elif hasattr(made, "load_default_certs"):
        made.load_default_certs()
    else:
        raise ConfigError(
            "a wss:// url needs ca: the certificate (PEM or DER) of who signed the host's"
        ) from None
    return made


def wrap(context, sock, host):
    # The handshake goes on whenever something is read or written.
    return context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)


def _certificates(ca):
    # As DER, which every build reads.
    if _BEGIN not in ca:
        return [ca]
    return [binascii.a2b_base64(part.partition(b"-----END")[0]) for part in ca.split(_BEGIN)[1:]]
