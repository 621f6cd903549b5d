"""From a model back to the text of its files, byte for byte."""

from __future__ import annotations

from treadle.frontends.xla_dump.model import (
    ALLOCATIONS,
    LIVE,
    VALUES,
    Allocation,
    SourceFile,
    XlaDump,
    human_size,
)
from treadle.frontends.xla_dump.parse_allocations import DIFFERENT_COLOR, TITLE, attribute_texts
from treadle.frontends.xla_dump.parse_live import live_lines
from treadle.frontends.xla_dump.parse_values import used_lines


def print_dump(dump: XlaDump) -> str:
    """The text of the first file: the whole dump where it is one file."""
    return print_file(dump, dump.files[0])


def print_file(dump: XlaDump, file: SourceFile) -> str:
    """The text of one file of the dump."""
    texts: list[str] = []
    joined = dump.values is not None and dump.values.joined
    for section in file.sections:
        if section == ALLOCATIONS:
            texts += _allocation_lines(dump)
        elif section == VALUES:
            texts += _value_lines(dump)
        elif section == LIVE:
            # The writer puts two newlines between, after text that may lack its own.
            texts += [] if not texts else [""] if joined else ["", ""]
            texts += live_lines(dump.live) if dump.live else []
    for unknown in file.unknown:
        texts.insert(unknown.line - 1, unknown.text)
    has_final_newline = not (joined and file.sections[-1] == VALUES)
    return file.newline.join(texts) + (file.newline if has_final_newline else "")


def _allocation_lines(dump: XlaDump) -> list[str]:
    texts = [TITLE]
    for allocation in dump.allocations:
        texts += allocation_lines(allocation)
    return texts


def allocation_lines(allocation: Allocation) -> list[str]:
    """The header of an allocation and its values."""
    attributes = "".join([f", {text}" for text in attribute_texts(allocation)])
    texts = [f"allocation {allocation.number}: size {allocation.size}{attributes}:"]
    texts += [
        f" value: {one.value} (size={one.size},offset={one.offset}): {one.shape}"
        for one in allocation.values
    ]
    if allocation.recoloured is not None:
        texts.append(DIFFERENT_COLOR)
        texts += [f"  value: {one.value} (color={one.color})" for one in allocation.recoloured]
    return texts


def _value_lines(dump: XlaDump) -> list[str]:
    values = dump.values
    assert values is not None, "this part is printed for dumps that have values"
    total = dump.total_bytes if values.stated_total is None else values.stated_total
    human = human_size(total) if values.stated_human is None else values.stated_human
    return used_lines(values, total, human)
