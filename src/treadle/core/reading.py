"""Reading what the user names: a file, or `-` for standard input; never more than a stated size."""

from __future__ import annotations

import sys
from functools import lru_cache
from os import PathLike, fspath
from typing import Any

from treadle.core.errors import InputError

STANDARD_INPUT = "-"
MAX_BYTES = 1 << 30


def read_bytes(path: str | PathLike[str]) -> bytes:
    """All bytes of the file, or of standard input; OSError, or InputError if there are too many."""
    if fspath(path) == STANDARD_INPUT:
        content = _all_of(sys.stdin)
    else:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)  # a device or a pipe may never end
    if len(content) > MAX_BYTES:
        raise InputError(
            file=path, expected="a file of at most 1 GiB", found="a larger one", code="TXT002"
        )
    return content


def read_utf8(path: str | PathLike[str]) -> str:
    """The text, its line ends as they are; also raises UnicodeDecodeError if it is not UTF-8."""
    return read_bytes(path).decode("utf-8")


@lru_cache(maxsize=1)
def _all_of(stream: Any) -> bytes:
    """What a stream holds, kept: a command may look at its input twice, a pipe gives it once."""
    raw = getattr(stream, "buffer", None)
    content = raw.read(MAX_BYTES + 1) if raw is not None else stream.read().encode("utf-8")
    return bytes(content)
