# vRT Edge, the device: a vRT 1.3 client for MicroPython 1.27 or newer (see app.py for how it hangs together).
VERSION = "0.1.0"
