"""One module a `vrt` subcommand: `add_arguments(parser)` and `run(args) -> exit code`."""
