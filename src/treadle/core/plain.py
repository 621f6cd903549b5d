"""Turns any value into plain JSON-able data, the same way everywhere."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Set
from typing import TypeAlias

Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None


def as_plain(value: object) -> Plain:
    """Return `value` as None, bool, int, float, str, list or dict of exactly those types.

    Sets are sorted so that equal facts print alike. What JSON has no form for (infinities,
    objects) becomes its text: a journal is read by people and by other versions.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # an Enum that is also a str would otherwise print its class
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return _in_order([as_plain(item) for item in value])
    try:
        return operator.index(value)  # type: ignore[arg-type]  # numpy's integers, for one
    except TypeError:
        return str(value)


def _in_order(items: list[Plain]) -> list[Plain]:
    try:
        return sorted(items)  # type: ignore[type-var]  # alike in most sets
    except TypeError:
        return sorted(items, key=repr)
