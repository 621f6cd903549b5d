"""One file per command; each has `add_arguments(parser)` and `run(args) -> exit code`."""
