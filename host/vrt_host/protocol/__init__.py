"""vRT on the wire, without I/O."""
