"""Byte counts as people write them: `16MiB`, `1.5 GiB`, `64kB`, `4096`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

UNITS: Mapping[str, int] = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**k for k, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**k for k, letter in enumerate("kmgt", 1)},
    **{letter: 1024**k for k, letter in enumerate("kmgt", 1)},
}
"""A bare K, M, G or T is the power of 1024, as for most commands."""
SHAPE = re.compile(r"\s*([0-9]{1,30})(?:\.([0-9]{1,30}))?\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)
FORMS = "a byte count such as 4096, 64kB or 16MiB"


def parse_bytes(text: str) -> int:
    """The number of bytes that the text says, or ValueError."""
    found = SHAPE.fullmatch(text)
    unit = UNITS.get(found[3].lower()) if found else None
    if found is None or unit is None:
        raise ValueError(f"{text!r} is not {FORMS}")
    size = Fraction(f"{found[1]}.{found[2] or 0}") * unit
    if size.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)
