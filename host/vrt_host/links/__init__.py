"""Byte transports between host and device."""
