# A WebSocket's address (RFC 6455 section 3). Needed when a link is made, and forgotten then.
import vrt
from vrt.errors import ConfigError


def address(url, ca):
    # What a link needs to know of its url: (TLS context or None, host, port, path, Host header). ca: see tls.py. Raises
    # ConfigError that says what to change.
    tls, host, port, path, header = parse(url)
    context = None
    if tls:
        context = vrt.use("vrt.links.tls").context(ca)  # memory that ws:// does not need
    vrt.forget("vrt.links.url", "vrt.links.tls")
    return context, host, port, path, header


def _host(url):
    # Returns (host, port) of the part between // and the path; port: None when there is none.
    if url.startswith("["):  # an IPv6 address
        host, bracket, rest = url[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            raise ConfigError("url must close an IPv6 address with ], such as ws://[::1]:8080/")
        return host, rest[1:] if rest else None
    host, colon, port = url.partition(":")
    return host, port if colon else None


def parse(url):
    # Returns (tls, host, port, path, Host header). Raises ConfigError that says what to change.
    example = ", such as ws://192.168.1.20:8080/"
    secrets = " token access_token auth api_key apikey password secret "
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("ws", "wss"):
        raise ConfigError(
            "url must begin with ws:// or wss://" + example + ", or be serial: for the board's port"
        )
    for byte in rest.encode():  # a character of a text would become a name in the heap
        if not 0x21 <= byte <= 0x7E:
            raise ConfigError("url must be plain ASCII without spaces: write other characters as %XX")
    if "#" in rest:
        raise ConfigError("url must not have a # part: remove it")
    authority = rest.split("/")[0].split("?")[0]
    path = rest[len(authority) :]
    if "@" in authority:
        raise ConfigError("url must not hold a user or password: put the token into the configuration")
    for pair in path.partition("?")[2].split("&"):
        name, equals, _ = pair.partition("=")
        if equals and " " + name.lower() + " " in secrets:
            raise ConfigError(f"url must not hold credentials ({name}): put the token into the configuration")
    host, port = _host(authority)
    if not host:
        raise ConfigError("url must name a host" + example)
    tls = scheme.lower() == "wss"
    number = usual = 443 if tls else 80
    header = authority
    if port is not None:
        number = int(port) if port.isdigit() and len(port) < 6 else 0
        if not 0 < number < 65536:
            raise ConfigError("url must have a port from 1 to 65535" + example)
        if number == usual:
            header = authority[: -1 - len(port)]
    return tls, host, number, path if path.startswith("/") else "/" + path, header
