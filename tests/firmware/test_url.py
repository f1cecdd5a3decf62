# Addresses of WebSockets.
from support import raises
from vrt.errors import ConfigError
from vrt.links.url import parse


def test_url_is_taken_apart():
    for url, parts in (
        ("ws://host", (False, "host", 80, "/", "host")),
        ("wss://host", (True, "host", 443, "/", "host")),
        ("WS://Host:8080/", (False, "Host", 8080, "/", "Host:8080")),
        ("wss://host:8443/a/b?c=d&e=/?:@", (True, "host", 8443, "/a/b?c=d&e=/?:@", "host:8443")),
        ("ws://192.168.1.20:80/x", (False, "192.168.1.20", 80, "/x", "192.168.1.20")),
        ("wss://host:443", (True, "host", 443, "/", "host")),
        ("ws://host:443", (False, "host", 443, "/", "host:443")),
        ("ws://host?a", (False, "host", 80, "/?a", "host")),
        ("ws://[::1]:8080/x", (False, "::1", 8080, "/x", "[::1]:8080")),
        ("wss://[fe80::1]", (True, "fe80::1", 443, "/", "[fe80::1]")),
        ("ws://h:1/%20~!$'()*+,;=", (False, "h", 1, "/%20~!$'()*+,;=", "h:1")),
        ("ws://h/user@home", (False, "h", 80, "/user@home", "h")),
        ("ws://h/?tokens=3&token", (False, "h", 80, "/?tokens=3&token", "h")),
    ):
        assert parse(url) == parts, (url, parse(url))


def complains(url, *words):
    text = str(raises(ConfigError, parse, url))
    assert text.startswith("url must"), text
    for word in words:
        assert word in text, (url, text)


def test_url_that_is_wrong_says_what_to_do():
    for url in ("", "host:80", "http://host/", "wsx://host", "ws:/host", "//host", "ws//host"):
        complains(url, "ws:// or wss://")
    for url in ("ws://", "ws:///path", "ws://:80/", "ws://[]:80/", "ws://?x"):
        complains(url, "host")
    for url in (
        "ws://h:",
        "ws://h:0",
        "ws://h:65536",
        "ws://h:-1",
        "ws://h:8o",
        "ws://h:1:2",
        "ws://h:000080",
        "ws://[::1]:",
    ):
        complains(url, "port")
    for url in ("ws://[::1", "ws://[::1]80/"):
        complains(url, "]")
    for url in ("ws://h/a b", "ws://h/\r\nX: y", "ws://h\xe9/", "ws://h/\x00", "ws://h/\x7f", "ws://h /"):
        complains(url, "ASCII", "%XX")
    complains("ws://h/#part", "#")


def test_url_with_credentials_is_refused():
    for url in ("ws://user@h/", "ws://user:secret@h/", "wss://:secret@h:1/", "ws://@h", "ws://[::1]@h"):
        complains(url, "user or password", "configuration")
    for url in (
        "ws://h/?token=abc",
        "ws://h?a=b&Access_Token=abc",
        "ws://h/x?password=",
        "ws://h/?api_key=1&z",
    ):
        complains(url, "credentials", "configuration")
    assert "abc" not in str(raises(ConfigError, parse, "ws://h/?token=abc"))
