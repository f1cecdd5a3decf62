# The tools' declarations, on flash: a line of JSON for each. `hello` says them once for each session and a call looks at one of
# them; in the heap they would take twice as much as their text, and for ever.
import json

from vrt import forget
from vrt.tools.arguments import canonical


def put(registry, path):
    # Writes them, unless they are there already. What the flash does not take stays in the heap. A file that a power cut left in
    # part is another one, and written anew at the next start.
    text = "".join([canonical(tool.declaration) + "\n" for tool in registry.tools])
    try:
        if not _is(path, text):
            with open(path, "w") as file:
                file.write(text)
    except OSError:
        return
    registry.shelf = path
    for tool in registry.tools:
        tool.declaration = None


def _is(path, text):
    try:
        with open(path) as file:
            return file.read() == text
    except (OSError, ValueError):  # none yet, or no text
        return False


def get(registry):
    # All of them, in order, as the tools are.
    if registry.shelf is None:
        return [tool.declaration for tool in registry.tools]
    with open(registry.shelf) as file:
        return [json.loads(line) for line in file]


def problem(registry, tool, arguments):
    # The first rule that they break, see rules.py, or None.
    from vrt.tools import rules  # noqa: PLC0415  (forgotten again)

    forget("vrt.tools.rules")
    return rules.problem(schema(registry, tool), arguments)


def schema(registry, tool):
    # Of the arguments of one of the tools.
    made = tool.declaration
    if made is None:
        with open(registry.shelf) as file:
            for one in registry.tools:
                line = file.readline()
                if one is tool:
                    made = json.loads(line)
    return made["parameters"]  # type: ignore  (`tool` is one of them)
