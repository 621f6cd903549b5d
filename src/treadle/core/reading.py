"""Reading what a user names: a file, a pipe, or standard input (`-`), up to a stated size."""

from __future__ import annotations

import os
import stat
import sys
from errno import EBADF
from functools import lru_cache
from typing import IO, Any

from treadle.core.errors import InputError

STANDARD_INPUT = "-"
MAX_BYTES = 256 << 20
"""Larger than any dump seen so far by a factor of twenty, and still read in seconds."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All bytes of the file, or of standard input; OSError, or InputError if there are too many."""
    name = os.fspath(path)
    if name == STANDARD_INPUT:
        return _all_of(sys.stdin)
    about = os.stat(name)
    if stat.S_ISFIFO(about.st_mode):
        return _all_of_pipe(name, about.st_dev, about.st_ino)
    with open(name, "rb") as file:
        return _limited(file, name)


def read_utf8(path: str | os.PathLike[str]) -> str:
    """The text, its line ends as they are; also raises UnicodeDecodeError if it is not UTF-8."""
    return read_bytes(path).decode("utf-8")


def read_text(path: str | os.PathLike[str], code: str = "TXT002") -> str:
    """The text of a file, or one InputError that says why there is none."""
    try:
        content = read_bytes(path)
        text = content.decode("utf-8")
    except OSError as e:
        found = e.strerror or str(e)
        raise InputError(file=path, expected="a readable file", found=found, code=code) from None
    except ValueError as e:  # not UTF-8, or a name with a zero byte
        found = str(e)
        if isinstance(e, UnicodeDecodeError):
            found = f"byte {content[e.start]:#04x} at offset {e.start}"
        raise InputError(file=path, expected="UTF-8 text", found=found, code=code) from None
    zero = text.find("\0")
    if zero >= 0:
        found = f"a zero byte at offset {len(text[:zero].encode())}"
        raise InputError(file=path, expected="UTF-8 text", found=found, code=code)
    return text


# A command may look at its input twice, a pipe gives it once: what came last is kept.


@lru_cache(maxsize=1)
def _all_of(stream: Any) -> bytes:
    if stream is None:
        raise OSError(EBADF, "standard input is closed")
    raw = getattr(stream, "buffer", None)
    if raw is None:  # a stand-in without bytes
        return bytes(stream.read().encode("utf-8"))
    return _limited(raw, STANDARD_INPUT)


@lru_cache(maxsize=2)  # `diff` compares two
def _all_of_pipe(name: str, device: int, inode: int) -> bytes:
    with open(name, "rb") as file:
        return _limited(file, name)


def _limited(file: IO[bytes], name: str) -> bytes:
    content = file.read(MAX_BYTES + 1)  # a device may never end
    if len(content) > MAX_BYTES:
        raise InputError(
            file=name,
            expected=f"a file of at most {MAX_BYTES >> 20} MiB",
            found="a larger one",
            code="TXT002",
        )
    return content
