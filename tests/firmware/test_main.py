import main
from fake_device import FakeBoard
from fake_flash import Flash
from support import raises
from vrt.errors import ConfigError
from vrt.setup import crash


class Clock:
    def __init__(self):
        self.now = 0

    def ticks_ms(self):
        return self.now

    def ticks_diff(self, a, b):
        return a - b


class Board(FakeBoard):
    def __init__(self, **raw):
        super().__init__(raw)
        self.clock = Clock()
        from vrt import build  # noqa: PLC0415  (a start forgets it)

        build.time = main.time = crash.time = self.clock
        self.made_safe = 0
        self.held_at = None

    def button(self):
        return self.held_at is not None and self.clock.now >= self.held_at

    def wait(self, sock, ms):
        self.clock.now += ms

    def safe(self):
        self.made_safe += 1

    def output(self, name):
        return self

    def value(self, *level):
        return 0


class Implementation:
    def __init__(self, name, *version):
        self.name = name
        self.version = version


def with_start(start, board, flash=None):
    # Runs the board with something else in place of the device. `flash`: where its crash log is.
    from vrt import build  # noqa: PLC0415

    kept = build.start
    build.start = start
    try:
        with flash or Flash(crash, {}):
            return main.run(board)
    finally:
        build.start = kept


def test_older_runtimes_are_refused_by_name():
    text = main.problem(Implementation("micropython", 1, 26, 1, ""))
    assert "1.27 or newer" in text
    assert "not 1.26" in text
    assert main.problem(Implementation("micropython", 1, 9, 4)) is not None
    assert main.problem(Implementation("micropython", 1, 27, 0, "preview")) is None
    assert main.problem(Implementation("micropython", 2, 0, 0)) is None


def test_the_start_waits_for_who_wants_to_stop_it():
    from vrt.build import cancelled, start  # noqa: PLC0415

    board = Board(url="ws://h/")
    assert not cancelled(board, 2000)
    assert board.clock.now >= 2000
    board = Board(url="ws://h/")
    board.held_at = 500
    assert cancelled(board, 2000)
    assert board.clock.now < 600
    assert start(board_with_button(0)) is None


def board_with_button(at):
    board = Board(url="ws://h/")
    board.held_at = at
    return board


def test_a_wrong_configuration_is_told_and_shown():
    for raw in (
        {},
        {"url": "http://h/"},
        {"url": "ws://h/", "lisen": 1},
        {"url": "ws://h/", "ca": "nowhere.pem"},
    ):
        board = Board(safe_boot_ms=0, **raw)
        error = raises(SystemExit, main.run, board)
        assert error.args == (1,)
        assert board.events[-1]["code"] == "CONFIG"
        assert board.lights == ["error"]
        assert board.made_safe == 1


def test_a_configuration_that_cannot_be_read_is_told_and_shown():
    for error in (ValueError("syntax error in JSON"), OSError(2)):
        board = Board()

        def config(error=error):
            raise error

        board.config = config
        raises(SystemExit, main.run, board)
        assert board.events[-1]["code"] == "CONFIG"
        assert board.lights == ["error"]


class Broken:
    # A device that crashes.
    closed = False

    def __init__(self):
        self.sound = self.link = self
        self.sock = None

    def run(self):
        raise ZeroDivisionError("oops")

    def close(self):
        self.closed = True


class Restarting(Board):
    restarted = 0

    def restart(self):
        assert self.made_safe
        self.restarted += 1


def test_a_crash_is_told_shown_and_raised_and_leaves_the_world_safe():
    board, app = Board(), Broken()
    raises(ZeroDivisionError, with_start, lambda board: app, board)
    assert board.events[-1]["code"] == "CRASH"
    assert "ZeroDivisionError: oops" in board.events[-1]["message"]
    assert board.lights == ["error"]
    assert board.made_safe == 1
    assert app.closed


def test_a_crash_gives_the_port_back():
    board, app = Board(), Broken()
    app.sock = port = Broken()
    raises(ZeroDivisionError, with_start, lambda board: app, board)
    assert port.closed


def test_a_board_that_can_restarts_after_a_crash():
    board, app = Restarting(), Broken()
    with_start(lambda board: app, board)
    assert board.events[-1]["code"] == "CRASH"
    assert board.restarted == 1
    assert app.closed


def test_a_board_does_not_restart_when_the_device_never_ran():
    def broken(board):
        raise OSError("no flash")

    board = Restarting()
    app = Broken()
    app.run = lambda: None
    raises(OSError, with_start, broken, board)
    with_start(lambda board: app, board)
    assert board.restarted == 0


def test_an_interrupt_from_the_keyboard_is_not_eaten():
    def interrupted(board):
        raise KeyboardInterrupt

    board = Board()
    raises(KeyboardInterrupt, with_start, interrupted, board)
    assert board.made_safe == 1
    assert board.events == []


def test_a_stopped_start_ends_quietly():
    board = Board()
    with_start(lambda board: None, board)
    assert board.events == []
    assert board.made_safe == 1


def test_a_fault_of_the_users_tools_is_told():
    def broken(board):
        raise ConfigError("tool lock has an illegal name")

    board = Board()
    raises(SystemExit, with_start, broken, board)
    assert board.events[-1]["message"] == "tool lock has an illegal name"
