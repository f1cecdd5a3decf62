"""Facades: other systems' protocols on ports of their own, for clients that reach this host's agents and boards (docs/facades.md)."""
