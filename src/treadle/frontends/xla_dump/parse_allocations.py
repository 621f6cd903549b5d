"""Allocations: `BufferAssignment:`, then a header line and value lines for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from treadle.frontends.xla_dump.lines import INDEX, NUMBER, VALUE, HloLines, index_of, value_of
from treadle.frontends.xla_dump.model import (
    Allocation,
    AllocationSection,
    Assigned,
    Parameter,
    Recoloured,
)

TITLE = "BufferAssignment:"
DIFFERENT_COLOR = " reused by buffers of a different color:"
_HEADER = re.compile(rf"allocation {NUMBER}: size {NUMBER}(|, .*):")
_VALUE = re.compile(rf" value: {VALUE} \(size={NUMBER},offset={NUMBER}\): (\S.*)")
_RECOLOURED = re.compile(rf"  value: {VALUE} \(color={NUMBER}\)")
_SEPARATOR = re.compile(r", ")

# In the order in which XLA writes them. Shapes stand between bars and hold no bar.
_ATTRIBUTES: Mapping[str, re.Pattern[str]] = {
    "color": re.compile(rf", color {NUMBER}(?=,|$)"),
    "page": re.compile(rf", page {NUMBER}(?=,|$)"),
    "parameter": re.compile(
        rf", parameter {NUMBER}, shape \|([^|]*)\| at ShapeIndex {INDEX}(?=,|$)"
    ),
    "output": re.compile(r", output shape is \|([^|]*)\|(?=,|$)"),
    "constant": re.compile(r", constant(?=,|$)"),
    "thread_local": re.compile(r", thread-local(?=,|$)"),
    "live_out": re.compile(r", maybe-live-out(?=,|$)"),
    "temp": re.compile(r", preallocated-temp(?=,|$)"),
}


def parse_allocations(lines: HloLines) -> AllocationSection:
    """The allocations from the cursor to the first line that is none of theirs."""
    lines.expect(TITLE)
    allocations: list[Allocation] = []
    while not lines.done and lines.text:
        if lines.skip_unknown():
            continue
        allocations.append(_allocation(lines))
    return AllocationSection(lines.file, tuple(allocations))


def _allocation(lines: HloLines) -> Allocation:
    line = lines.number
    found = _HEADER.fullmatch(lines.text)
    if not found:
        raise lines.error("'allocation N: size N, ...:', a value of one, or a blank line")
    fields, extra = _attributes(found[3])
    if extra is None:
        raise lines.error("attributes after the size, each after a comma")
    lines.take()
    values, recoloured = _values(lines)
    parameter, output = fields.get("parameter"), fields.get("output")
    allocation = Allocation(
        number=int(found[1]),
        size=int(found[2]),
        color=int(fields["color"][1]) if "color" in fields else 0,
        page=int(fields["page"][1]) if "page" in fields else None,
        parameter=_parameter(parameter) if parameter else None,
        output_shape=output[1] if output else None,
        is_constant="constant" in fields,
        is_thread_local="thread_local" in fields,
        is_live_out="live_out" in fields,
        values=values,
        recoloured=recoloured,
        extra=extra,
        line=line,
        stated_temp="temp" in fields,
    )
    return _without_redundant_statement(allocation)


def _without_redundant_statement(allocation: Allocation) -> Allocation:
    if allocation.stated_temp == allocation.derived_temp:
        return replace(allocation, stated_temp=None)
    return allocation


def _parameter(found: re.Match[str]) -> Parameter:
    return Parameter(int(found[1]), found[2], index_of(found[3]) or ())


def _attributes(
    text: str,
) -> tuple[dict[str, re.Match[str]], tuple[tuple[int, str], ...] | None]:
    """The known attributes by name, and the unknown ones with how many known stand before."""
    fields: dict[str, re.Match[str]] = {}
    extra: list[tuple[int, str]] = []
    at = 0
    while at < len(text):
        for name, pattern in _ATTRIBUTES.items():
            if name not in fields and (found := pattern.match(text, at)):
                fields[name] = found
                at = found.end()
                break
        else:
            if not text.startswith(", ", at):
                return fields, None
            following = _SEPARATOR.search(text, at + 2)
            end = following.start() if following else len(text)
            extra.append((len(fields), text[at + 2 : end]))
            at = end
    return fields, tuple(extra)


def _values(lines: HloLines) -> tuple[tuple[Assigned, ...], tuple[Recoloured, ...] | None]:
    values: list[Assigned] = []
    while True:
        if found := _VALUE.fullmatch(lines.text):
            size, offset, shape = int(found[6]), int(found[7]), found[8]
            values.append(Assigned(value_of(found), size, offset, shape, lines.number))
            lines.take()
        elif lines.text.startswith(" value:"):
            raise lines.error("' value: <ID NAME @COLOR> (size=N,offset=N): SHAPE'")
        elif not lines.skip_unknown((DIFFERENT_COLOR,)):
            break
    return tuple(values), _recoloured(lines) if lines.text == DIFFERENT_COLOR else None


def _recoloured(lines: HloLines) -> tuple[Recoloured, ...]:
    lines.take()
    found: list[Recoloured] = []
    while lines.text.startswith("  value:"):
        match = _RECOLOURED.fullmatch(lines.text)
        if not match:
            raise lines.error("'  value: <ID NAME> (color=N)'")
        found.append(Recoloured(value_of(match), int(match[6]), lines.number))
        lines.take()
    return tuple(found)


def attribute_texts(allocation: Allocation) -> list[str]:
    """The attributes of a header as XLA writes them, unknown ones where they stood."""
    a = allocation
    parameter = a.parameter
    writers: tuple[tuple[bool, Callable[[], str]], ...] = (
        (a.color != 0, lambda: f"color {a.color}"),
        (a.page is not None, lambda: f"page {a.page}"),
        (parameter is not None, lambda: _parameter_text(parameter)),
        (a.output_shape is not None, lambda: f"output shape is |{a.output_shape}|"),
        (a.is_constant, lambda: "constant"),
        (a.is_thread_local, lambda: "thread-local"),
        (a.is_live_out, lambda: "maybe-live-out"),
        (a.is_temp, lambda: "preallocated-temp"),
    )
    texts = [write() for holds, write in writers if holds]
    for count, (place, text) in enumerate(a.extra):
        texts.insert(place + count, text)
    return texts


def _parameter_text(parameter: Parameter | None) -> str:
    assert parameter is not None, "an allocation printed as a parameter has one"
    index = "{" + ",".join(map(str, parameter.index)) + "}"
    return f"parameter {parameter.number}, shape |{parameter.shape}| at ShapeIndex {index}"
