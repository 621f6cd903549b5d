"""Shapes as HLO text writes them: `f32[2,3]{1,0}`, `(s32[], bf16[4]{0:T(256)})`, and their bytes.

shape = parse_shape("(f32[8]{0}, s32[])")
shape.elements[0].dims     (8,)
byte_size(shape)           16: a tuple is a table of two pointers
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

POINTER_BYTES = 8
MAX_DEPTH = 40
BITS = {
    "pred": 8, "token": 0, "opaque": 8 * POINTER_BYTES,
    "s1": 8, "s2": 8, "s4": 8, "s8": 8, "s16": 16, "s32": 32, "s64": 64,
    "u1": 8, "u2": 8, "u4": 8, "u8": 8, "u16": 16, "u32": 32, "u64": 64,
    "f4e2m1fn": 8, "f8e3m4": 8, "f8e4m3": 8, "f8e4m3fn": 8, "f8e4m3b11fnuz": 8,
    "f8e4m3fnuz": 8, "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0fnu": 8,
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\[\]]*)\]")
_LAYOUT_BITS = re.compile(r":.*?E\(([0-9]{1,3})\)")
_COMMENT = re.compile(r"/\*.*?\*/")
_SPACES = re.compile(r"(?:\s|/\*.*?\*/)*")


@dataclass(frozen=True, slots=True)
class Shape:
    """An array: element type, sizes (None: not known before run time), its layout's text."""

    element: str
    dims: tuple[int | None, ...]
    layout: str = ""
    is_dynamic: bool = False

    def __str__(self) -> str:
        dims = ",".join(["?" if n is None else str(n) for n in self.dims])
        return f"{self.element}[{dims}]"


@dataclass(frozen=True, slots=True)
class TupleShape:
    """Several shapes; in memory, a table of pointers."""

    elements: tuple[Shape | TupleShape, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


AnyShape = Shape | TupleShape


def parse_shape(text: str) -> AnyShape | None:
    """The shape that the whole text is, or None."""
    found = scan_shape(text, 0)
    return found[0] if found and found[1] == len(text) else None


def scan_shape(text: str, at: int, depth: int = 0) -> tuple[AnyShape, int] | None:
    """The shape that begins at `at` and where it ends, or None."""
    if depth > MAX_DEPTH:
        return None
    if text.startswith("(", at):
        return _scan_tuple(text, at, depth)
    found = _ARRAY.match(text, at)
    if not found:
        return None
    dims: list[int | None] = []
    is_dynamic = False
    for part in _COMMENT.sub("", found[2]).split(",") if found[2].strip() else []:
        number = part.strip().removeprefix("<=")
        is_dynamic = is_dynamic or part.strip().startswith("<=") or number == "?"
        if number == "?":
            dims.append(None)
        elif number.isascii() and number.isdecimal() and len(number) < 19:
            dims.append(int(number))
        else:
            return None
    end = found.end()
    if text.startswith("{", end):
        close = text.find("}", end)
        if close < 0:
            return None
        return Shape(found[1], tuple(dims), text[end : close + 1], is_dynamic), close + 1
    return Shape(found[1], tuple(dims), "", is_dynamic), end


def _scan_tuple(text: str, at: int, depth: int) -> tuple[TupleShape, int] | None:
    elements: list[AnyShape] = []
    at = _skip(text, at + 1)
    while not text.startswith(")", at):
        found = scan_shape(text, at, depth + 1)
        if not found:
            return None
        elements.append(found[0])
        at = _skip(text, found[1])
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith(")", at):
            return None
    return TupleShape(tuple(elements)), at + 1


def _skip(text: str, at: int) -> int:
    found = _SPACES.match(text, at)
    return found.end() if found else at


def byte_size(shape: AnyShape) -> int | None:
    """The bytes of an array, or of a tuple's table; None where the text does not tell.

    That is so for sizes known at run time only, tiled layouts and types that are not known.
    """
    if isinstance(shape, TupleShape):
        return POINTER_BYTES * len(shape.elements)
    bits = BITS.get(shape.element)
    if bits is None or shape.is_dynamic or "T(" in shape.layout:
        return None
    if packed := _LAYOUT_BITS.search(shape.layout):
        bits = int(packed[1])
    count = prod([n for n in shape.dims if n is not None])
    return (count * bits + 7) // 8


def subshape(shape: AnyShape, index: tuple[int, ...]) -> AnyShape | None:
    """The shape at `index` inside nested tuples, or None."""
    for k in index:
        if not isinstance(shape, TupleShape) or k >= len(shape.elements):
            return None
        shape = shape.elements[k]
    return shape
