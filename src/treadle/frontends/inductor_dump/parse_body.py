"""Loop bodies: `class op0_loop_body:` with ranges, index expressions and blocks of statements."""

from __future__ import annotations

import re
from typing import Literal

from treadle.frontends.inductor_dump.lines import SectionLines, closing, is_balanced, split_commas
from treadle.frontends.inductor_dump.model import (
    Argument,
    BodyBlock,
    BodyCall,
    DumpDType,
    GetIndex,
    GetItem,
    Index,
    Keywords,
    LoopBody,
    MaskedCall,
    OpCall,
    Pack,
    QuotedText,
    Return,
    SetIndirect,
    Statement,
    UnknownNodeLine,
    UnknownStatement,
    ValueName,
    Verbatim,
)
from treadle.frontends.inductor_dump.parse_values import Values

WORDS = ("None", "True", "False", "inf", "nan")

_NAMED = re.compile(r"    (\w+) = (.+)")
_BLOCK = re.compile(r"    def (\w+)\(self, ops\):")
_ASSIGNED = re.compile(r" {8}(\w+) = (.+)")
_RETURN = re.compile(r" {8}return (.+)")
_CALL = re.compile(r"(ops|self)\.(\w+)\(")
_GET_INDEX = re.compile(r"self\.get_index\('(\w+)'\)")
_ITEM = re.compile(r"(\w+)\[(\d{1,6})\]")
_SLOT = re.compile(r"set_indirect(\d{1,6})")
_KEYWORD = re.compile(r"(\w+) = (.+)", re.DOTALL)
_NAME = re.compile(r"[^\W\d]\w*")
_STRING = re.compile(r"'([^'\\\"]*)'")


def parse_body(lines: SectionLines, values: Values) -> LoopBody:
    """The body that begins at the cursor, just after its `class` line."""
    line = lines.number
    head, _, ranges_text = lines.text.partition(" = ")
    ranges = values.ranges(ranges_text) if head == "    var_ranges" else None
    if ranges is None:
        raise lines.error("'    var_ranges = {...}'")
    lines.take()
    indices, unknown = _indices(lines, values)
    blocks: list[BodyBlock] = []
    while found := _BLOCK.fullmatch(lines.text):
        start = lines.number
        lines.take()
        blocks.append(BodyBlock(found[1], _statements(lines), start))
    if not blocks:
        raise lines.error("an index or '    def body(self, ops):'")
    return LoopBody(ranges, indices, tuple(blocks), unknown, line)


def _indices(
    lines: SectionLines, values: Values
) -> tuple[tuple[tuple[str, Index], ...], tuple[UnknownNodeLine, ...]]:
    indices: list[tuple[str, Index]] = []
    unknown: list[UnknownNodeLine] = []
    last = "var_ranges"
    while found := _NAMED.fullmatch(lines.text):
        if found[1].startswith("index"):
            index = values.index(found[2])
            if index is None:
                raise lines.error("an index expression with balanced brackets")
            indices.append((found[1], index))
            last = found[1]
        else:
            unknown.append(UnknownNodeLine(lines.text, last, lines.number))
        lines.take()
    return tuple(indices), tuple(unknown)


def _statements(lines: SectionLines) -> tuple[Statement, ...]:
    out: list[Statement] = []
    while True:
        if found := _RETURN.fullmatch(lines.text):
            value = _argument(found[1])
            if value is None:
                raise lines.error("a value to return")
            lines.take()
            out.append(Return(value))
            return tuple(out)
        found = _ASSIGNED.fullmatch(lines.text)
        if found is None:
            raise lines.error("a statement of the loop body, up to its 'return'")
        if not is_balanced(found[2]):
            raise lines.error("a statement with balanced brackets")
        statement = _statement(found[1], found[2])
        out.append(statement or UnknownStatement(lines.text[8:], lines.number))
        lines.take()


def _statement(result: str, text: str) -> Statement | None:
    if found := _GET_INDEX.fullmatch(text):
        return GetIndex(result, found[1])
    if found := _ITEM.fullmatch(text):
        return GetItem(result, found[1], int(found[2]))
    found = _CALL.match(text)
    if found is None or closing(text, found.end() - 1) != len(text) - 1:
        return None
    owner, name = found.groups()
    arguments = _arguments(text[found.end() : -1])
    if arguments is None:
        return None
    args, keywords = arguments
    if owner == "ops":
        return OpCall(result, name, args, keywords)
    if (slot := _SLOT.fullmatch(name)) and len(args) == 1 and not keywords:
        return SetIndirect(result, int(slot[1]), args[0])
    if name.startswith("masked_subblock") and len(args) == 2 and not keywords:
        return MaskedCall(result, name, args[0], args[1])
    return BodyCall(result, name, args, keywords)


def _arguments(text: str) -> tuple[tuple[Argument, ...], Keywords] | None:
    args: list[Argument] = []
    keywords: list[tuple[str, Argument]] = []
    for part in split_commas(text) or ():
        found = _KEYWORD.fullmatch(part)
        value = _argument(found[2] if found else part)
        if value is None or (keywords and not found):
            return None
        if found:
            keywords.append((found[1], value))
        else:
            args.append(value)
    return tuple(args), tuple(keywords)


def _argument(text: str) -> Argument | None:
    if _NAME.fullmatch(text):
        return Verbatim(text) if text in WORDS else ValueName(text)
    if found := _STRING.fullmatch(text):
        return QuotedText(found[1])
    if text.startswith("torch.") and text[6:].isidentifier():
        return DumpDType(text[6:])
    if text[:1] in ("(", "[") and closing(text, 0) == len(text) - 1:
        return _pack(text)
    return Verbatim(text) if text else None


def _pack(text: str) -> Argument | None:
    parts = split_commas(text[1:-1])
    if parts is None:
        return None
    brackets: Literal["()", "[]"] = "()" if text[0] == "(" else "[]"
    if brackets == "()" and parts:
        if len(parts) == 1:
            return Verbatim(text)
        if not parts[-1]:
            parts.pop()
    items = [_argument(part) for part in parts]
    if any(item is None for item in items):
        return None
    return Pack(tuple(item for item in items if item is not None), brackets)
