# The file of settings, config.json: changed so that at every moment there is a whole copy on the flash, and read with the
# help of the copies when it is damaged. The copy before the last change stays as PATH with the ending `.old`.
import json
import os


def recover(path):
    # The settings of the newest whole copy: for when the file itself is damaged or gone. Puts them back into the file. Raises
    # OSError or ValueError, of the file itself, when there is none.
    for spare in (_ending(path, "new"), _ending(path, "old")):
        try:
            made = read(spare)
        except (OSError, ValueError):
            continue
        os.rename(spare, path)
        return made
    return read(path)


def read(path):
    # A whole one. Raises OSError, ValueError.
    with open(path) as file:
        made = json.loads(file.read())
    if not isinstance(made, dict):
        raise ValueError("it holds no settings")  # noqa: TRY004  (as when it is no JSON)
    return made


def change(path, changes):
    # Settings that take other values, or with None go; the rest of the file stays. Returns all of them. Raises OSError when
    # the flash refuses; then the old ones hold.
    try:
        made = read(path)
    except (OSError, ValueError):  # what is damaged is no copy worth having
        try:
            made = recover(path)
        except (OSError, ValueError):
            made = {}
    else:
        with open(_ending(path, "old"), "w") as file:
            file.write(json.dumps(made))
    for name, value in changes.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = value
    spare = _ending(path, "new")
    with open(spare, "w") as file:
        file.write(json.dumps(made))
    if hasattr(os, "sync"):
        os.sync()
    os.rename(spare, path)
    return made


def _ending(path, ending):
    return path[: path.rfind(".") + 1] + ending
