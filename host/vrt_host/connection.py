"""One connection of the server: the table of vRT §5.1. `session.py` documents how it is driven."""
