"""`vrt monitor` at a pseudo-terminal, as a process, and what it makes of a line."""

import json
import os
import pty
import signal
import subprocess
import sys
import tty

import pytest
from fake_board import FakeBoard
from vrt_host import cli
from vrt_host.device import monitor
from vrt_host.device.monitor import Lines, shown


@pytest.fixture
def line(tmp_path):
    """(what the board writes to, the port)"""
    master, slave = pty.openpty()
    tty.setraw(slave)
    port = tmp_path / "ttyBOARD"
    port.symlink_to(os.ttyname(slave))
    yield master, slave, str(port)
    for fd in (master, slave):
        os.close(fd)


class Monitor:
    """The command in a process."""

    def __init__(self, port, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vrt_host", "monitor", "--port", port, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        assert self.process.stderr.readline() == f"vrt monitor: {port}; Ctrl-C ends it\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=30)
        return self.process.returncode


def test_monitor_shows_events_and_text_and_ends_with_ctrl_c(line):
    master, _, port = line
    with Monitor(port) as watched:
        os.write(master, b'boot: hello\r\n{"event": "led", "state": "idle"}\r\n')
        os.write(
            master,
            b'{"event": "error", "code": "CONFIG", "message": "no"}\n{"event": "wifi", "state": "up", "rssi": -61}\n',
        )
        read = watched.process.stdout.readline
        assert read() == "boot: hello\n"
        assert read() == "led: idle\n"
        assert read() == "ERROR CONFIG: no\n"
        assert read() == "wifi: state up, rssi -61\n"
        assert watched.interrupt() == 0


def test_monitor_prints_json(line):
    master, _, port = line
    with Monitor(port, "--json") as watched:
        os.write(master, b'ets Jul 29\n{"event": "call", "token": "s3cret"}\n{"no": "event"}\n')
        lines = [json.loads(watched.process.stdout.readline()) for _ in range(3)]
    assert lines == [
        {"event": "console", "text": "ets Jul 29"},
        {"event": "call", "token": "(hidden)"},
        {"event": "console", "text": '{"no": "event"}'},
    ]


def test_monitor_ends_when_nobody_reads_any_more(line):
    """As before `| head -1`: it is not the board that has gone."""
    master, _, port = line
    with Monitor(port) as watched:
        os.write(master, b"one\n")
        assert watched.process.stdout.readline() == "one\n"
        watched.process.stdout.close()
        os.write(master, b"two\n")
        assert watched.process.wait(timeout=30) == 0
        assert watched.process.stderr.read() == ""
        watched.process.stdout = None


def test_monitor_sends_nothing_and_leaves_the_program_running(tmp_path):
    program = b"import time\nfor i in range(9999):\n    print('tick', i)\n    time.sleep_ms(20)\n"
    with FakeBoard(tmp_path, files={"main.py": program}) as board:
        board.wait_for(b"tick 1")
        with Monitor(board.port) as watched:
            assert watched.process.stdout.readline().startswith("tick")
            assert watched.interrupt() == 0
        n = board.printed.count(b"tick")
        board.wait_for(b"tick %d\n" % (n + 5))
        assert b"KeyboardInterrupt" not in board.printed
        assert b"soft reboot" not in board.printed


def test_monitor_waits_for_a_board_that_goes_away(tmp_path):
    first = tmp_path / "1"
    first.mkdir()
    with FakeBoard(first, files={"main.py": b"print('one')\n"}) as board, Monitor(board.port) as watched:
        board.unplug()
        assert "is gone; waiting for it" in watched.process.stderr.readline()
        program = b"import time\nwhile True:\n    print('two')\n    time.sleep_ms(50)\n"
        (tmp_path / "2").mkdir()
        with FakeBoard(tmp_path / "2", files={"main.py": program}) as other:
            os.symlink(os.readlink(other.port), board.port)
            assert "is back" in watched.process.stderr.readline()
            while "two" not in watched.process.stdout.readline():
                pass


def test_modem_lines_never_differ_in_the_way_that_resets_a_chip():
    """Both from the start, and at the end the reset's line is released first."""
    done = []

    class Port:
        def __setattr__(self, name, value):
            done.append((name, value))

        def open(self):
            done.append("open")

        def close(self):
            done.append("close")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            monitor.ports.serial, "serial_for_url", lambda *_, **options: done.append(options) or Port()
        )
        made = monitor.opened("/dev/x")
    monitor.closed(made)
    assert done[0]["do_not_open"] is True
    assert set(done[1:4]) == {("exclusive", True), ("rts", True), ("dtr", True)}
    assert done[4] == "open"
    assert done[-3:] == [("rts", False), ("dtr", False), "close"]


def test_port_that_cannot_be_opened_is_one_line(tmp_path, capsys, line):
    assert cli.main(["monitor", "--port", str(tmp_path / "none")]) == 2
    assert "there is no port" in capsys.readouterr().err
    _, _, port = line
    held = monitor.opened(port)
    assert cli.main(["monitor", "--port", port]) == 2
    assert "is in use by another program" in capsys.readouterr().err
    monitor.closed(held)


@pytest.mark.parametrize(
    "text",
    [
        '{"event": "x", "token": "s3cret-value"}',
        '{"event": "x", "deep": [{"wifi_password": "s3cret-value"}]}',
        '{"event": "x", "auth": {"token": "s3cret-value"}}',
        '{"event": "x", "message": "token=s3cret-value"}',
        '{"event": "x", "message": "to ws://me:s3cret-value@host/"}',
        "Authorization: Bearer s3cret-value",
        "config: {'wifi_password': 's3cret-value', 'url': 'ws://h/'}",
        '{"token": "s3cret-value"',
        "password = s3cret-value",
        "api_key:s3cret-value",
        "the token is vrt_s3cret-value0123456789",
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_are_not_shown(text, as_json):
    made = shown(text, as_json=as_json)
    assert "s3cret" not in made
    assert "(hidden)" in made


@pytest.mark.parametrize(
    "text",
    [
        "tokens are kept by vrt token",
        '{"event": "call", "name": "lock", "arguments": {"door": "front"}}',
        "keyboard: ok",
    ],
)
def test_what_is_no_secret_stays(text):
    assert "(hidden)" not in shown(text, as_json=False)


def test_lines_come_whole_however_they_are_split():
    data = 'grüße\r\n\x1e{"event": "led"}\r\nlast'.encode()
    for n in range(1, len(data)):
        lines = Lines()
        found = [*lines.feed(data[:n]), *lines.feed(data[n:]), *lines.end()]
        assert found == ["grüße", '{"event": "led"}', "last"]


def test_frames_of_the_serial_link_are_left_out_wherever_they_are_cut():
    frame = b"\xc0C\x07" + b'{"auth":{"token":"s3cret"}}\n' + b"\xf3\x80\x12\x99\xc0"
    data = b"one\n" + frame + frame + b"two\nAll of three\n" + frame + b"four\n"
    for n in range(1, len(data)):
        lines = Lines()
        found = [*lines.feed(data[:n]), *lines.feed(data[n:]), *lines.end()]
        assert found == ["one", "two", "All of three", "four"]
        assert lines.unreadable == 3


def test_noise_is_counted_and_an_endless_line_is_cut():
    lines = Lines()
    assert list(lines.feed(b"\x80\x81\xfe\x01\x02\n")) == []
    assert lines.unreadable == 1
    assert [len(text) for text in lines.feed(b"x" * 5000)] == [5000]
