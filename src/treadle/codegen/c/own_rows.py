"""Rows of f16 or bf16 that one loop alone goes through: on whole vectors it converts them itself.

float t0[1024]; float t9_2[1024];
tr_widen_f16(t0, p0 + (i0_b), 1024);              const tr_w v0 = tr_w_load_f16(p0 + (i0_b) + i0_l);
... v0 = t0[i0_l]; ... t9_2[i0_l] = v8; ...  ->   ...
tr_narrow_f16(p1 + (i0_b), t9_2, 1024);           tr_w_store_f16(p1 + (i0_b) + i0_l, v8);

The rows are there because compilers convert single elements only (`wide_rows`). A loop written on
whole vectors needs none: each element is stored and loaded once less on the way in, and on the way
out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from treadle.codegen.c.block import CodeBlock

DECLARED = re.compile(r"float (t\w+)\[\d+\] ")
WIDENED = re.compile(r"tr_widen_(b?f16)\((t\w+), (.+), \w+\);")
NARROWED = re.compile(r"tr_narrow_(b?f16)\((.+), (t\w+), \w+\);")
HARMLESS = re.compile(r"(?:const )?(?:float|double|u?int\d+_t) \w+ = |#pragma omp simd")
"""Lines that store nothing."""


@dataclass(frozen=True)
class OwnRows:
    """Rows that nobody but one loop reads or writes, and the memory they stand for."""

    loaded: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Row -> the type of what it holds, and the place in memory."""
    stored: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    """Lines before the loop that declare and fill them."""
    behind: tuple[str, ...] = ()
    """Lines behind it that empty them."""


def own_rows(parent: CodeBlock, loop: CodeBlock) -> OwnRows:
    """The rows of a loop that stands in a block; none if the block does anything else besides."""
    if [part for part in parent.parts if isinstance(part, CodeBlock)] != [loop]:
        return OwnRows()
    where = parent.parts.index(loop)
    before = [line for line in parent.parts[:where] if isinstance(line, str)]
    behind = [line for line in parent.parts[where + 1 :] if isinstance(line, str)]
    loaded = {m[2]: (m[1], m[3]) for line in before if (m := WIDENED.fullmatch(line))}
    stored = {m[3]: (m[1], m[2]) for line in behind if (m := NARROWED.fullmatch(line))}
    empty = behind[: len(stored)]
    known = re.compile(rf"\b(?:{'|'.join([*loaded, *stored])})\b")
    about = [line for line in before if _is_about(line, known)]
    others = [line for line in before if line not in about]
    touched = [
        line for line in (*parent.head, *others, *behind[len(stored) :]) if known.search(line)
    ]
    # What is stored sooner than it was must not be read meanwhile.
    is_next = all(map(NARROWED.fullmatch, empty))
    if not (loaded or stored) or touched or not is_next or not all(map(HARMLESS.match, others)):
        return OwnRows()
    return OwnRows(loaded, stored, tuple(about), tuple(empty))


def _is_about(line: str, rows: re.Pattern[str]) -> bool:
    declared = DECLARED.match(line)
    is_filled = WIDENED.fullmatch(line)
    return bool(is_filled) or (declared is not None and bool(rows.fullmatch(declared[1])))
