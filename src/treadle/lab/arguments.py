"""Kinds of values on the command line; what is wrong is one line that says what is allowed."""

from __future__ import annotations

import argparse

from treadle.core.sizes import parse_bytes


def byte_count(text: str) -> int:
    """The bytes that `4096`, `64kB` or `16MiB` says."""
    try:
        return parse_bytes(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None
