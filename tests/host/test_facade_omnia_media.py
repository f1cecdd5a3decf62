"""The Omnia facade: files that its clients upload, and every status of their routes."""

import asyncio
import contextlib
import dataclasses
import json
import ssl

import aiohttp
import pytest
from host_client import DEADLINE_S
from omnia_client import answers, serving, until
from peers.vectors import errors, frame, load
from test_guest import Brain
from test_updates import served
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.errors import UsageError
from vrt_host.facades import omnia_media

ASKED = {"session_id": "s 1", "filename": 'ph"ö.jpg', "mime_type": "image/jpeg", "size_bytes": 4}
JPEG = {"Content-Type": "image/jpeg"}


@contextlib.asynccontextmanager
async def storing(tmp_path, *brains, **options):
    """A host with a folder for media; `host.http` is a session of HTTP to it."""
    async with serving(*brains, media=tmp_path / "media", **options) as host:
        base = f"http://127.0.0.1:{host.facade.port}"
        async with aiohttp.ClientSession(base) as host.http:
            host.base = base
            yield host


async def asked(host, status=200, headers=None, **members):
    """POST /media/request-upload."""
    async with host.http.post("/media/request-upload", json={**ASKED, **members}, headers=headers) as answer:
        assert answer.status == status, await answer.text()
        ready = await answer.json()
        assert status != 200 or errors("omnia", "upload_ready", ready) == []
        return ready


async def put(host, url, body=b"four", headers=JPEG):
    async with host.http.put(url.removeprefix(host.base), data=body, headers=headers) as answer:
        return answer.status


def place(ready, route, session="s%201"):
    """The path of a route for what is uploaded."""
    return f"/media/{route}/{session}/{ready['storage_ref'].rpartition('/')[2]}"


async def got(host, path, headers=None):
    async with host.http.get(path, headers=headers) as answer:
        return answer.status, await answer.read(), answer.headers


async def test_a_file_is_asked_for_sent_read_and_named_in_a_message(tmp_path):
    """Page, Media upload: PUT answers 204; info and download."""
    heard = []
    brain = Brain(lambda agent, text: (heard.append(text), answers(agent, "x")))
    async with storing(tmp_path, brain) as host, host.omnia(agent="a", connected=True) as client:
        await client.send(
            "upload_request",
            upload_request={"filename": "photo.jpg", "mime_type": "image/jpeg", "size_bytes": 4},
        )
        ready = (await client.until("upload_ready"))["upload_ready"]
        assert (ready["method"], ready["headers"]) == ("PUT", JPEG)
        assert ready["storage_ref"].startswith(f"omnia://sessions/{client.id}/media/med-")
        assert (await got(host, place(ready, "info", client.id)))[0] == 404  # not before it is there
        assert await put(host, ready["upload_url"], headers=ready["headers"]) == 204
        status, body, _ = await got(host, place(ready, "info", client.id))
        info = json.loads(body)
        assert status == 200
        assert errors("omnia", "media_info", info) == []
        assert (info["storage_ref"], info["size_bytes"]) == (ready["storage_ref"], 4)
        media = {"storage_ref": ready["storage_ref"], "mime_type": "image/jpeg"}
        await client.send("message", parts=[{"type": "image", "media": media}])
        await client.answer()
        assert ready["storage_ref"] in heard[0]


async def test_a_download_has_its_type_and_its_name_and_no_rights(tmp_path):
    """Page, Media download endpoint."""
    async with storing(tmp_path) as host:
        ready = await asked(host)
        assert await put(host, ready["upload_url"]) == 204
        status, body, headers = await got(host, place(ready, "download"))
        assert (status, body, headers["Content-Type"]) == (200, b"four", "image/jpeg")
        assert headers["Content-Disposition"] == (
            "inline; filename=\"ph__.jpg\"; filename*=UTF-8''ph%22%C3%B6.jpg"
        )
        assert (headers["Content-Security-Policy"], headers["X-Content-Type-Options"]) == (
            "sandbox",
            "nosniff",
        )


async def test_an_address_is_for_one_upload_and_one_that_failed_can_be_tried_again(tmp_path):
    """Code, handler.go: 404 not found, 400 failed, 413 too large, 415 type; local.go: single use."""
    async with storing(tmp_path) as host:
        ready = await asked(host)
        url = ready["upload_url"]
        assert await put(host, url + "x") == 404
        assert await put(host, url, headers={"Content-Type": "text/html"}) == 415
        assert await put(host, url, body=b"fours") == 413
        assert await put(host, url, body=b"fou") == 400
        assert [one for one in (tmp_path / "media").iterdir() if one.stat().st_size] == []
        assert await put(host, url) == 204
        assert await put(host, url) == 404


async def test_a_type_can_have_parameters(tmp_path):
    async with storing(tmp_path) as host:
        ready = await asked(host, mime_type="Text/Plain; charset=utf-8")
        assert await put(host, ready["upload_url"], headers=ready["headers"]) == 204
        assert (await got(host, place(ready, "download")))[2]["Content-Type"] == "Text/Plain; charset=utf-8"


async def test_every_route_has_its_method(tmp_path):
    """Code, handler.go: 405."""
    async with storing(tmp_path) as host:
        for method, path in (
            ("GET", "/media/request-upload"),
            ("POST", "/media/upload/upl-x"),
            ("POST", "/media/info/s/m"),
            ("PUT", "/media/download/s/m"),
        ):
            async with host.http.request(method, path) as answer:
                assert answer.status == 405


async def test_a_request_that_is_wrong_is_refused_with_its_status(tmp_path):
    async with storing(tmp_path) as host:
        for vector in load("omnia").invalid:
            if vector.get("as") == "request_upload":
                sent = frame(vector)
                body = sent if isinstance(sent, str) else json.dumps(sent)
                async with host.http.post("/media/request-upload", data=body) as answer:
                    assert answer.status == vector["answer"]["status"], vector["id"]


async def test_what_cannot_be_announced_has_its_status(tmp_path, monkeypatch):
    """Code, handler.go: 400 for a body that is none, 413, 415, 500; local.go: 100 MiB."""
    assert omnia_media.MEDIUM_BYTES == 100 * 1024 * 1024
    async with storing(tmp_path) as host:
        async with host.http.post("/media/request-upload", data=b"{") as answer:
            assert answer.status == 400
        await asked(host, size_bytes=omnia_media.MEDIUM_BYTES)
        await asked(host, 413, size_bytes=omnia_media.MEDIUM_BYTES + 1)
        await asked(host, 415, mime_type="a/b\r\nX-Evil: 1")
        monkeypatch.setattr(omnia_media, "FOLDER_BYTES", omnia_media.MEDIUM_BYTES)
        await asked(host, 500)
        monkeypatch.undo()
        monkeypatch.setattr(omnia_media, "UPLOADS", 1)
        await asked(host, 500)


async def test_an_address_is_valid_for_15_minutes_and_a_medium_for_24_hours(tmp_path, monkeypatch):
    """Code, local.go: 15 min, 24 h; handler.go: 410. Later they are forgotten."""
    assert (omnia_media.UPLOAD_S, omnia_media.KEPT_S) == (15 * 60, 24 * 3600)
    now = 1_800_000_000.0
    monkeypatch.setattr(omnia_media.time, "time", lambda: now)
    async with storing(tmp_path) as host:
        late, kept = await asked(host), await asked(host)
        assert late["expires_at"] == "2027-01-15T08:15:00.000Z"
        assert await put(host, kept["upload_url"]) == 204
        now += 15 * 60
        assert await put(host, late["upload_url"]) == 410
        now += 24 * 3600 - 15 * 60 - 1
        assert (await got(host, place(kept, "download")))[0] == 200
        now += 1
        assert (await got(host, place(kept, "download")))[0] == 410
        assert list((tmp_path / "media").iterdir()) == []
        now += 15 * 60
        assert (await got(host, place(kept, "info")))[0] == 404


async def test_a_reference_that_is_none_is_400(tmp_path):
    async with storing(tmp_path) as host:
        assert (await got(host, "/media/info/s/..%2f..%2fetc"))[0] == 400
        assert (await got(host, f"/media/download/s/med-{'0' * 32}"))[0] == 404


async def test_files_are_their_owners_alone_and_want_a_token(tmp_path):
    file = TokenFile(tmp_path / "t.json")
    mine, other = ({"Authorization": f"Bearer {file.add(name)}"} for name in ("mine", "other"))
    config = ServerConfig(port=0, tokens=file.path, origins=("https://app.example",))
    async with storing(tmp_path, config=config) as host:
        async with host.http.post("/media/request-upload", json=ASKED) as answer:
            assert answer.status == 401
        ready = await asked(host, headers=mine)
        assert await put(host, ready["upload_url"]) == 204  # the address is the secret
        for route in ("info", "download"):
            assert (await got(host, place(ready, route), mine))[0] == 200
            assert (await got(host, place(ready, route), other))[0] == 404
            assert (await got(host, place(ready, route, "s2"), mine))[0] == 404
            assert (await got(host, place(ready, route)))[0] == 401
            strange = {**mine, "Origin": "https://evil.example"}
            assert (await got(host, place(ready, route), strange))[0] == 403


async def test_what_cannot_be_prepared_is_told_and_without_a_folder_there_are_no_routes(tmp_path):
    """Page, Error codes: UPLOAD_FAILED, MEDIA_NOT_ENABLED."""
    large = {"filename": "f", "mime_type": "m/m", "size_bytes": omnia_media.MEDIUM_BYTES + 1}
    async with storing(tmp_path) as host, host.omnia(agent="a", connected=True) as client:
        await client.send("upload_request", upload_request=large)
        assert await client.error() == ("UPLOAD_FAILED", "failed to prepare upload")
    async with serving() as host, host.omnia(agent="a", connected=True) as client:
        await client.send("upload_request", upload_request=large)
        assert await client.error() == ("MEDIA_NOT_ENABLED", "media storage is not enabled")
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{host.facade.port}") as http,
            http.post("/media/request-upload", json=ASKED) as answer,
        ):
            assert answer.status == 404


async def test_the_address_is_how_clients_reach_the_server(tmp_path):
    async with storing(tmp_path, public_url="https://agents.example") as host:
        assert (await asked(host))["upload_url"].startswith("https://agents.example/media/upload/upl-")


def test_a_folder_that_cannot_be_used_is_a_usage_error_and_what_was_left_there_goes(tmp_path):
    left, other = tmp_path / f"med-{'0' * 32}", tmp_path / "mine.txt"
    left.touch()
    other.touch()
    omnia_media.Store(tmp_path)
    assert not left.exists()
    assert other.exists()
    with pytest.raises(UsageError, match="media folder"):
        omnia_media.Store(other)


async def test_with_tls_everything_is_encrypted(tmp_path):
    file = TokenFile(tmp_path / "tokens.json")
    mine = {"Authorization": f"Bearer {file.add('mine')}"}
    config = dataclasses.replace(served(tmp_path), port=0)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    async with serving(config=config, media=tmp_path / "media") as host:
        assert host.facade.url.startswith("wss://")
        base = f"https://127.0.0.1:{host.facade.port}"
        async with aiohttp.ClientSession(base, connector=aiohttp.TCPConnector(ssl=trust)) as http:
            async with http.post("/media/request-upload", json=ASKED, headers=mine) as answer:
                assert (await answer.json())["upload_url"].startswith(f"{base}/media/upload/")
            async with http.ws_connect("/ws?agent=a", headers=mine) as ws:
                assert (await ws.receive_json())["type"] == "connected"


async def sent(host, head, body):
    """A request by hand, which need not be whole; its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", host.facade.port)
    writer.write(f"{head}\r\nHost: x\r\n".encode() + body)
    await writer.drain()
    return reader, writer


def upload(ready, host):
    """The head of a request for it."""
    return f"PUT {ready['upload_url'].removeprefix(host.base)} HTTP/1.1\r\nContent-Type: image/jpeg"


async def status(reader):
    async with asyncio.timeout(DEADLINE_S):
        return int((await reader.readuntil(b"\r\n")).split()[1])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"Content-Length: 4\r\nContent-Encoding: gzip\r\n\r\nfour", 400),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nfo\r\nzz\r\n", 400),
        (b"Content-Length: 4\r\n\r\nfo", None),
    ],
)
async def test_an_upload_that_breaks_off_leaves_nothing_and_can_be_tried_again(
    tmp_path, caplog, body, expected
):
    async with storing(tmp_path) as host:
        ready = await asked(host)
        reader, writer = await sent(host, upload(ready, host), body)
        if expected is None:
            await until(lambda: list((tmp_path / "media").iterdir()))
            writer.transport.abort()
        else:
            assert await status(reader) == expected
        await until(lambda: not list((tmp_path / "media").iterdir()))
        assert await put(host, ready["upload_url"]) == 204
        writer.close()
    assert [one.getMessage() for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []


async def test_no_body_is_waited_for_for_ever(tmp_path, monkeypatch):
    async with storing(tmp_path) as host:
        ready = await asked(host)
        monkeypatch.setattr(omnia_media, "UPLOAD_S", 0.1)
        monkeypatch.setattr(omnia_media, "BODY_S", 0.1)
        for head in (upload(ready, host), "POST /media/request-upload HTTP/1.1"):
            reader, writer = await sent(host, head, b"Content-Length: 4\r\n\r\nfo")
            assert await status(reader) == 408
            writer.close()
        reader, writer = await sent(
            host,
            "POST /media/request-upload HTTP/1.1",
            b"Content-Length: 4\r\nContent-Encoding: gzip\r\n\r\nfour",
        )
        assert await status(reader) == 400
        writer.close()


async def test_files_are_for_their_users_eyes_and_go_with_the_host(tmp_path):
    folder = tmp_path / "media"
    async with storing(tmp_path) as host:
        assert await put(host, (await asked(host))["upload_url"]) == 204
        [file] = folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
    assert list(folder.iterdir()) == []


async def test_what_has_expired_goes_while_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(omnia_media, "SWEEP_S", 0.05)
    monkeypatch.setattr(omnia_media, "KEPT_S", 0.3)
    async with storing(tmp_path) as host:
        assert await put(host, (await asked(host))["upload_url"]) == 204
        await until(lambda: not list((tmp_path / "media").iterdir()))


async def test_no_file_of_another_is_written_through_a_link(tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("mine")
    async with storing(tmp_path) as host:
        ready = await asked(host)
        medium = ready["storage_ref"].rpartition("/")[2]
        (tmp_path / "media" / medium).symlink_to(secret)
        assert await put(host, ready["upload_url"]) == 500
    assert secret.read_text() == "mine"
