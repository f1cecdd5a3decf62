"""docs/device.md against the firmware: states of the LED, reasons of Wi-Fi, figures."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "device.md").read_text(encoding="utf-8")
FIRMWARE = ROOT / "firmware"


def rows(heading):
    """The first cells of the table below that line, without their marks."""
    below = PAGE[PAGE.index(heading) :]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)[0].splitlines()[2:]
    return [line.split("|")[1].strip().strip("`") for line in table]


def constant(path, name):
    found = re.search(rf"^{name} = const\(([^)]*)\)", (FIRMWARE / path).read_text("utf-8"), re.MULTILINE)
    return eval(found[1].replace("_", ""))


def test_every_state_of_the_led_is_on_the_page_and_on_every_kind_of_led():
    tree = ast.parse((ROOT / "boards" / "espled.py").read_text("utf-8"))
    states = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "_STATES"
    )
    assert sorted(rows("## The light")) == sorted(states)
    shown = set()
    for path in [FIRMWARE / "main.py", *(FIRMWARE / "vrt").rglob("*.py")]:
        shown.update(re.findall(r'\bled\("(\w+)"\)', path.read_text("utf-8")))
    report = (FIRMWARE / "vrt" / "app.py").read_text("utf-8").split("def _report")[1].split("def ")[0]
    shown.update(re.findall(r'state = "(\w+)"', report))
    shown.update(re.findall(r'else "(\w+)"$', report, re.MULTILINE))
    shown.add("wifi")
    assert shown <= set(states), shown - set(states)
    rhythms = [state[3] for state in states.values()]
    assert len(set(rhythms)) == len(rhythms), "two states look alike"


def test_every_reason_of_wifi_is_on_the_page():
    told = "\n".join(rows("| reason | means |"))
    source = (FIRMWARE / "vrt" / "links" / "wifi.py").read_text("utf-8")
    words = re.findall(r'return "([a-z][a-zIP ]+)"', source) + re.findall(r'"(no [a-zIP ]+)"', source)
    assert len(set(words)) >= 5
    for word in words:
        assert word in told, word


def test_the_figures_on_the_page_are_the_firmwares():
    for path, name, factor, text in (
        ("vrt/setup/forget.py", "_HOLD_MS", 1000, "hold for ten seconds"),
        ("vrt/setup/forget.py", "_WARN_MS", 1000, "the third second"),
        ("vrt/setup/crash.py", "_MOST", 1, "Three crashes in a row"),
        ("vrt/setup/crash.py", "_EARLY_MS", 60_000, "within five minutes"),
        ("vrt/setup/crash.py", "_REST_MS", 60_000, "ten minutes"),
        ("vrt/setup/crash.py", "_KEPT", 1, "the last four"),
        ("vrt/setup/onboard.py", "_WINDOW_MS", 1000, "for 60 s"),
        ("vrt/setup/onboard.py", "_JOIN_MS", 1000, "20 s\nafter the start"),
        ("vrt/links/wifi.py", "_TLS_BLOCK", 1024, "less than 17 KiB"),
    ):
        words = {3: "third three", 4: "four", 5: "five", 10: "ten"}
        value = constant(path, name) // factor
        assert text in PAGE, text
        found = re.findall(r"\d+", text)
        assert found[:1] == [str(value)] or any(
            word in text.lower() for word in words.get(value, "").split()
        ), (name, value, text)
