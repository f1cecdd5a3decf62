# The vRT protocol, pure: bytes and ticks in, messages and bytes out; no I/O, no clock, no hardware.
