# The audio path. `from vrt.audio import dsp` gives the compiled kernels, or their plain twins on a runtime whose
# MicroPython has no viper emitter (SyntaxError from the source, ValueError from a .mpy of another chip).
try:
    from vrt.audio import dsp
except (SyntaxError, ValueError):
    from vrt.audio import dsp_plain as dsp  # noqa: F401
