"""Loop bodies as text: ranges, index expressions, then one `def` for each block."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.frontends.inductor_dump.model import (
    Argument,
    BodyCall,
    DumpDType,
    GetIndex,
    GetItem,
    Keywords,
    LoopBody,
    MaskedCall,
    OpCall,
    Pack,
    QuotedText,
    Ranges,
    Return,
    SetIndirect,
    Statement,
    UnknownStatement,
    ValueName,
)


def body_lines(body: LoopBody) -> Iterator[str]:
    """The lines below `class op0_loop_body:`."""
    notes: dict[str, list[str]] = {}
    for line in body.unknown:
        notes.setdefault(line.after, []).append(line.text)
    yield f"    var_ranges = {ranges_text(body.ranges)}"
    yield from notes.pop("var_ranges", ())
    for name, index in body.indices:
        yield f"    {name} = {index.text}"
        yield from notes.pop(name, ())
    for lost in notes.values():
        yield from lost
    for block in body.blocks:
        yield f"    def {block.name}(self, ops):"
        for statement in block.statements:
            yield f"        {statement_text(statement)}"


def ranges_text(ranges: Ranges) -> str:
    """`{p0: 8, p1: 16}`."""
    return f"{{{', '.join([f'{name}: {size.text}' for name, size in ranges])}}}"


def statement_text(statement: Statement) -> str:
    """One statement without its indentation."""
    match statement:
        case GetIndex(result, index):
            return f"{result} = self.get_index('{index}')"
        case OpCall(result, op, args, keywords):
            return f"{result} = ops.{op}({_arguments(args, keywords)})"
        case SetIndirect(result, slot, value):
            return f"{result} = self.set_indirect{slot}({argument_text(value)})"
        case MaskedCall(result, block, mask, other):
            return f"{result} = self.{block}({argument_text(mask)}, {argument_text(other)})"
        case BodyCall(result, target, args, keywords):
            return f"{result} = self.{target}({_arguments(args, keywords)})"
        case GetItem(result, source, position):
            return f"{result} = {source}[{position}]"
        case Return(value):
            return f"return {argument_text(value)}"
        case UnknownStatement(text):
            return text


def _arguments(args: tuple[Argument, ...], keywords: Keywords) -> str:
    named = [f"{name} = {argument_text(value)}" for name, value in keywords]
    return ", ".join([*[argument_text(value) for value in args], *named])


def argument_text(value: Argument) -> str:
    """An argument as it stands between the brackets of a call."""
    if isinstance(value, ValueName):
        return value.name
    if isinstance(value, QuotedText):
        return f"'{value.text}'"
    if isinstance(value, DumpDType):
        return f"torch.{value.name}"
    if isinstance(value, Pack):
        comma = "," if value.brackets == "()" and len(value.items) == 1 else ""
        inner = ", ".join([argument_text(item) for item in value.items])
        return f"{value.brackets[0]}{inner}{comma}{value.brackets[1]}"
    return value.text
