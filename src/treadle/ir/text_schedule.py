"""The steps of a loop schedule, read from text: `split i0 by 16, order i0 r0 i0', keep %7`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from treadle.ir.loop_schedule import (
    KNOBS,
    Bind,
    Binding,
    Flush,
    Keep,
    Order,
    Split,
    StageLoad,
    Step,
    Tune,
)
from treadle.ir.text_cursor import Cursor

_AXIS = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*'?")


def parse_step(at: Cursor) -> Step:
    """One step; an error names the place and what could stand there."""
    return READERS[at.expect_word(*READERS)](at)


def _axis(at: Cursor) -> str:
    found = at.match(_AXIS)
    if found is None:
        raise at.error("a loop, such as i0 or i0'")
    return found


def _split(at: Cursor) -> Step:
    axis = _axis(at)
    at.expect_word("by")
    return Split(axis, at.integer("the size of a block"))


def _order(at: Cursor) -> Step:
    axes = [_axis(at)]
    while at.peek_word():
        axes.append(_axis(at))
    return Order(tuple(axes))


def _bind(at: Cursor) -> Step:
    axis = _axis(at)
    at.expect_word("to")
    return Bind(axis, Binding(at.expect_word(*[b.value for b in Binding])))


READERS: Mapping[str, Callable[[Cursor], Step]] = {
    "split": _split,
    "order": _order,
    "bind": _bind,
    "stage": lambda at: StageLoad(at.value_number()),
    "keep": lambda at: Keep(at.value_number()),
    "flush": lambda at: Flush(_axis(at)),
    "tune": lambda at: Tune(at.expect_word(*KNOBS), at.integer("a number")),
}
"""How each step is read, by its first word."""
