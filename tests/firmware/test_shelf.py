# The tools' declarations on flash.
import os

from support import raises
from vrt.tools import Tool, shelf

PATH = "vrt-test-tools.json"


class Registry:
    def __init__(self, *tools):
        self.tools = tools
        self.shelf = None


def made():
    return Registry(
        Tool(len, "lock", "Lock.", {"door": {"enum": ["front", "back"]}}, effect="irreversible"),
        Tool(len, "light", "Switch.", {"to": {"type": "boolean"}}, timeout_ms=5000),
    )


def removed():
    if PATH in os.listdir():
        os.remove(PATH)


def test_declarations_on_flash_are_those_that_were_made():
    wanted = [tool.declaration for tool in made().tools]
    try:
        for _ in range(2):  # anew, and as it lies there
            registry = made()
            shelf.put(registry, PATH)
            assert [tool.declaration for tool in registry.tools] == [None, None]
            assert shelf.get(registry) == wanted
            for number in (0, 1):
                assert shelf.schema(registry, registry.tools[number]) == wanted[number]["parameters"]
    finally:
        removed()


def test_file_that_was_cut_or_is_of_other_tools_is_written_anew():
    try:
        shelf.put(made(), PATH)
        with open(PATH) as file:
            whole = file.read()
        for left in (whole[:20], whole + whole, "", "[]\n"):
            with open(PATH, "w") as file:
                file.write(left)
            shelf.put(made(), PATH)
            with open(PATH) as file:
                assert file.read() == whole
    finally:
        removed()


def reading(path):
    return open(path)


def test_file_that_is_as_it_should_be_is_not_written():
    try:
        shelf.put(made(), PATH)
        shelf.open = reading
        shelf.put(made(), PATH)
    finally:
        del shelf.open
        removed()


def test_what_the_flash_does_not_take_stays_in_the_heap():
    registry = made()
    shelf.put(registry, "nowhere/" + PATH)
    assert registry.shelf is None
    assert shelf.get(registry) == [tool.declaration for tool in made().tools]
    assert shelf.schema(registry, registry.tools[1])["required"] == ["to"]
    assert raises(OSError, open, "nowhere/" + PATH)
