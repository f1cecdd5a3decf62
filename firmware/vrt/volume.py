# The speaker's volume, for tools: `from vrt.volume import volume`.
from vrt import sound


def volume(percent=None):
    # Sets it, 0 to 100, and returns what it is.
    made = sound.made
    if percent is not None:
        from vrt.audio.make import adjust  # noqa: PLC0415  (forgotten again)

        adjust(made, percent)
    return made.config["volume"]
