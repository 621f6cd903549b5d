"""The values on a line: index expressions, dependences, layouts, users, lists of names.

Each function takes text and returns the value, or None where the text is not one; the caller knows
the line and says what was expected. Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from treadle.frontends.inductor_dump.lines import MAX_DEPTH, closing, is_balanced, split_commas
from treadle.frontends.inductor_dump.model import (
    Bracketed,
    Dep,
    DumpDevice,
    Index,
    Layout,
    MemoryDep,
    MultiOutputLayout,
    NoneLayout,
    OtherLayout,
    Ranges,
    StarDep,
    TensorLayout,
    User,
    WeakDep,
)
from treadle.index import Expr, IndexSyntaxError, Kind, Symbol
from treadle.index.text import loop_or_indirect, parse

BOOLS = {"True": True, "False": False}
# Beyond these an expression keeps only its text: a hostile file must not keep the algebra busy.
LIMIT_OF_TERMS = 100_000
LIKELY_SIZE = 16  # what a run-time size counts as: a dump does not tell
LIMIT_OF_CHARACTERS = 5_000

SIZE_NAME = re.compile(r"(?:s|u|ps)\d+")
_QUOTED = re.compile(r"'([^'\\]*)'")
_STAR = re.compile(r"StarDep\(name='([^'\\]*)', mode=(?:None|'([^'\\]*)')\)")
_WEAK = re.compile(
    r"WeakDep\(name='([^'\\]*)', mutating_buf='([^'\\]*)'(?:, is_fake=(True|False))?\)"
)
_USER = re.compile(
    r"NodeUser\(node=(?:(\w+)\((?:name='([^'\\]*)'|nodes=(\w+))\)|OUTPUT), "
    r"can_inplace=(True|False)(?:, is_weak=(True|False))?\)"
)
_DEVICE = re.compile(r"device\(type='([^'\\]*)'(?:, index=(\d{1,4}))?\)")
_SUM_FACTORS = re.compile(r"\)\*(?:\*(\d+))?")


class Values:
    """Reads values and remembers them: the same text is the same object, and is read once."""

    __slots__ = ("_deps", "_indices", "_layouts")

    def __init__(self) -> None:
        self._indices: dict[str, Index] = {}
        self._deps: dict[str, Dep | None] = {}
        self._layouts: dict[str, Layout | None] = {}

    # -- index expressions -----------------------------------------------------------------
    def index(self, text: str) -> Index | None:
        """An index expression; one that the algebra cannot say has only its text."""
        known = self._indices.get(text)
        if known is None and text and is_balanced(text):
            known = self._indices[text] = Index(text, _meaning(text))
        return known

    def ranges(self, text: str) -> Ranges | None:
        """`{c0: 8, c1: 16}`."""
        if not text.startswith("{") or closing(text, 0) != len(text) - 1:
            return None
        out: list[tuple[str, Index]] = []
        for part in split_commas(text[1:-1]) or ():
            name, colon, size = part.partition(": ")
            index = self.index(size)
            if not colon or not name.isidentifier() or index is None:
                return None
            out.append((name, index))
        return tuple(out)

    def nest(self, text: str, depth: int = 0) -> Bracketed | Index | None:
        """Brackets around expressions and further brackets, or one expression."""
        if depth > MAX_DEPTH or not text:
            return None
        whole = text[0] in "([" and closing(text, 0) == len(text) - 1
        is_tuple = text[0] == "("
        parts = split_commas(text[1:-1]) if whole else None
        if parts is None or (is_tuple and len(parts) == 1):
            return self.index(text)  # parentheses of an expression, as in (s0//2)
        if is_tuple and parts and not parts[-1]:
            parts.pop()  # (8,)
        items = [self.nest(part, depth + 1) for part in parts]
        if any(item is None for item in items):
            return None
        brackets: Literal["()", "[]"] = "()" if is_tuple else "[]"
        return Bracketed(tuple(item for item in items if item is not None), brackets)

    # -- dependences -----------------------------------------------------------------------
    def deps(self, text: str) -> tuple[Dep, ...] | None:
        """`[MemoryDep(...), StarDep(...)]`, also with the blanks of a wrapped list."""
        return _listed(text, self.dep)

    def dep(self, text: str) -> Dep | None:
        """One dependence."""
        if text not in self._deps:
            self._deps[text] = self._read_dep(text)
        return self._deps[text]

    def _read_dep(self, text: str) -> Dep | None:
        if text.startswith("MemoryDep("):
            return self._memory_dep(text)
        if found := _STAR.fullmatch(text):
            return StarDep(found[1], found[2])
        if found := _WEAK.fullmatch(text):
            return WeakDep(found[1], found[2], BOOLS[found[3]] if found[3] else None)
        return None

    def _memory_dep(self, text: str) -> MemoryDep | None:
        if not text.endswith(")"):
            return None
        parts = split_commas(text[len("MemoryDep(") : -1])
        if parts is None or len(parts) not in (3, 4):
            return None
        name = _QUOTED.fullmatch(parts[0])
        index = self.index(parts[1])
        ranges = self.ranges(parts[2])
        if name is None or index is None or ranges is None:
            return None
        mode = parts[3] if len(parts) == 4 and parts[3] != "None" else None
        return MemoryDep(name[1], index, ranges, mode)

    # -- layouts -----------------------------------------------------------------------------
    def layout(self, text: str) -> Layout | None:
        """A layout of any class; one of an unknown shape is kept as text."""
        if text not in self._layouts:
            self._layouts[text] = self._read_layout(text)
        return self._layouts[text]

    def _read_layout(self, text: str) -> Layout | None:
        kind, bracket, _ = text.partition("(")
        if not kind.isidentifier() or closing(text, len(kind)) != len(text) - 1 or not bracket:
            return None
        parts = split_commas(text[len(kind) + 1 : -1]) or []
        layout: Layout | None
        if kind == "NoneLayout":
            layout = self._none_layout(parts)
        elif kind == "MultiOutputLayout":
            layout = self._multi_output_layout(parts)
        else:
            layout = self._tensor_layout(kind, parts)
        return layout or OtherLayout(text)

    def _tensor_layout(self, kind: str, parts: list[str]) -> TensorLayout | None:
        if len(parts) < 4 or not parts[1].startswith("torch."):
            return None
        device = _QUOTED.fullmatch(parts[0])
        fields = _fields(parts[2:])
        size, stride = self._list(fields, "size"), self._list(fields, "stride")
        if device is None or size is None or stride is None:
            return None
        offset_text = fields.pop("offset", None)
        offset = self.index(offset_text) if offset_text else None
        is_pinned = fields.pop("is_pinned", None) == "True"
        if fields:
            return None
        return TensorLayout(kind, device[1], parts[1][6:], size, stride, offset, is_pinned)

    def _none_layout(self, parts: list[str]) -> NoneLayout | None:
        fields = _fields(parts)
        known, device = _device(fields.pop("device", ""))
        size, stride = self._list(fields, "size"), self._list(fields, "stride")
        return NoneLayout(device, size, stride) if known and not fields else None

    def _multi_output_layout(self, parts: list[str]) -> MultiOutputLayout | None:
        fields = _fields(parts)
        known, device = _device(fields.pop("device", ""))
        return MultiOutputLayout(device) if known and not fields else None

    def _list(self, fields: dict[str, str], key: str) -> Bracketed | None:
        nest = self.nest(fields.pop(key, ""))
        return nest if isinstance(nest, Bracketed) else None


def user(text: str) -> User | None:
    """`NodeUser(node=SchedulerNode(name='op1'), can_inplace=True, is_weak=False)`."""
    found = _USER.fullmatch(text)
    if found is None:
        return None
    node_class, name, group, can_inplace, is_weak = found.groups()
    return User(
        node="OUTPUT" if node_class is None else (group or name or ""),
        node_class=node_class,
        can_inplace=BOOLS[can_inplace],
        is_weak=BOOLS[is_weak] if is_weak else None,
        names_group=group is not None,
    )


def users(text: str) -> tuple[User, ...] | None:
    """A list of users on one line."""
    return _listed(text, user)


def names(text: str) -> tuple[str, ...] | None:
    """`['buf1', 'buf2']`."""

    def name(part: str) -> str | None:
        found = _QUOTED.fullmatch(part)
        return found[1] if found else None

    return _listed(text, name)


def _listed(text: str, read: Callable[[str], Any]) -> tuple[Any, ...] | None:
    if not text.startswith("[") or not text.endswith("]"):
        return None
    parts = split_commas(text[1:-1].strip(" "))
    if parts is None:
        return None
    items = tuple([read(part) for part in parts])
    return None if None in items else items


def _fields(parts: list[str]) -> dict[str, str]:
    return {key: value for key, _, value in (part.partition("=") for part in parts)}


def _device(text: str) -> tuple[bool, DumpDevice | None]:
    """Whether the text is a device, and which; None is one."""
    if text == "None":
        return True, None
    found = _DEVICE.fullmatch(text)
    if found is None:
        return False, None
    return True, DumpDevice(found[1], int(found[2]) if found[2] else None)


def _meaning(text: str) -> Expr | None:
    if len(text) > LIMIT_OF_CHARACTERS or _may_explode(text):
        return None
    try:
        return parse(text, default=_symbol)
    except IndexSyntaxError:
        return None


def _symbol(name: str) -> Expr:
    if SIZE_NAME.fullmatch(name):
        return Symbol(name, Kind.SIZE, lo=0, hint=LIKELY_SIZE)
    return loop_or_indirect(name)


def _may_explode(text: str) -> bool:
    """Whether multiplying out products of sums could give more terms than any real index has."""
    factors = 1
    for found in _SUM_FACTORS.finditer(text):
        factors += int(found[1][:3]) if found[1] else 1
    terms = 1 + text.count(" + ") + text.count(" - ")
    return factors > 1 and terms**factors > LIMIT_OF_TERMS
