"""The `vrt` command itself: what it prints and returns when it is used right and wrong."""

import os
import subprocess
import sys

import pytest
from vrt_host import __version__
from vrt_host.cli import COMMANDS, main


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"vrt {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_examples(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"vrt {command}" in capsys.readouterr().out.split("example", 1)[1]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "choose a COMMAND: "),
        (["--nope"], "--nope"),
        (["serve", "here"], "'here' (see `vrt serve --help`)"),
        (["token", "add", "kitchen", "hall"], "'hall' (see `vrt token --help`)"),
        (["nope"], "nope"),
        (["serve", "--port", "abc"], "abc"),
        (["serve", "--agent", "nope"], "nope"),
        (["serve", "--nope"], "--nope"),
        (["sim", "--heap", "many"], "many"),
        (["token"], "ACTION"),
    ],
)
def test_wrong_words_get_one_line_that_names_them(words, named, capsys):
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    assert code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("vrt")
    assert named in printed.err


@pytest.mark.parametrize("words", [["boards"], ["boards", "--json"], ["boards", "bread-compact-s3"]])
def test_reader_that_leaves_early_is_no_traceback(words):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "vrt_host", *words]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in (1, 141)  # the first is that of the tables
