"""From the text of a dump to its model, with one message that names the line if that fails.

A file is one section. A log has a section for every message of Inductor's two IR loggers: a line
that ends with BEFORE FUSION or AFTER FUSION, then lines with the same prefix. Lines of other
messages are kept as they are.

What was read is printed and compared before it is handed out, so a dump that could be read can
always be written back byte for byte.
"""

from __future__ import annotations

import re
from dataclasses import replace

from treadle.core.errors import InputError
from treadle.core.reading import read_text
from treadle.frontends.inductor_dump.dialect import detect_dialect
from treadle.frontends.inductor_dump.findings import find_oddities
from treadle.frontends.inductor_dump.lines import CODE, SectionLines
from treadle.frontends.inductor_dump.model import DumpLoop, DumpNode, DumpSection, InductorDump
from treadle.frontends.inductor_dump.parse_node import NodeParser
from treadle.frontends.inductor_dump.parse_values import Values
from treadle.frontends.inductor_dump.print import print_dump

TITLE = re.compile(r"((?:.* )?)((?:BEFORE|AFTER) FUSION) *")
_LOOKS_LIKE_NODE = re.compile(r"^(\w+): \w+\([\w,]*\)\r?\n\1\.writes =", re.MULTILINE)
_LOOKS_LIKE_LOG = re.compile(
    r"^(?:.* )?(?:BEFORE|AFTER) FUSION *\r?\n(?:.* )?\w+: \w+\([\w,]*\)\r?$", re.MULTILINE
)


def looks_like_dump(text: str) -> bool:
    """Whether `text` is an Inductor dump, whole or damaged, as a file or in a log."""
    return bool(_LOOKS_LIKE_NODE.search(text) or _LOOKS_LIKE_LOG.search(text))


def read_dump(path: str) -> InductorDump:
    """The dump in a file, or one InputError."""
    return parse_dump(read_text(path, CODE), path)


def parse_dump(text: str, file: str = "<text>") -> InductorDump:
    """The dump that `text` is, or one InputError with the line and what was expected there."""
    dialect = detect_dialect(text)
    lines = text.split(dialect.newline)
    if dialect.is_log:
        sections, rest = _log_sections(lines, file)
    else:
        sections, rest = [_section(SectionLines(lines, file))], ()
    if not dialect.is_log and not sections[0].nodes:
        expected = "a node such as 'op0: SchedulerNode(ComputedBuffer)'"
        raise InputError(file=file, line=1, expected=expected, found="an empty file", code=CODE)
    dump = InductorDump(dialect, tuple(sections), rest)
    _require_same_text(dump, text, file)
    return replace(dump, findings=tuple(find_oddities(dump)))


def _section(lines: SectionLines) -> DumpSection:
    """The nodes from the cursor to the end of `lines`."""
    parser, line = NodeParser(lines, Values()), lines.number
    nodes: list[DumpNode] = []
    while lines.at < lines.end:
        nodes.append(parser.node())
        if lines.at >= lines.end:
            break
        after = lines.at
        if lines.take() or lines.take() or not lines.text:
            lines.at = after
            while not lines.text:
                lines.take()
            name = nodes[-1].name[:40]
            raise lines.error(f"a line of {name}, or exactly two blank lines and the next node")
    final_newlines = len(lines.lines) - lines.end
    if nodes and _is_cut(nodes[-1], final_newlines):
        lines.at = lines.end - 1
        raise lines.error("the rest of the node: the file is cut")
    return DumpSection(tuple(nodes), final_newlines=final_newlines, line=line)


def _is_cut(node: DumpNode, final_newlines: int) -> bool:
    """Whether the last node seems to go on; where a body ends, only its text could tell."""
    last = node
    while last.snodes:
        last = last.snodes[-1]
    if last.kind == "extern":
        return final_newlines == 0  # the name of the kernel may go on
    has_no_body = isinstance(last.detail, DumpLoop) and not last.detail.body
    return (last.kind == "other" or has_no_body) and final_newlines < 2


def _log_sections(lines: list[str], file: str) -> tuple[list[DumpSection], tuple[str, ...]]:
    sections: list[DumpSection] = []
    foreign: list[str] = []
    at = 0
    while at < len(lines):
        found = TITLE.fullmatch(lines[at])
        end = _end_of_message(lines, at, found[1]) if found else at
        if found is None or end == at + 1:
            foreign.append(lines[at])
            at += 1
            continue
        prefix = found[1]
        inner = [line[len(prefix) :] for line in lines[at + 1 : end]]
        section = _section(SectionLines(inner, file, at + 2))
        sections.append(
            replace(section, title=found[2], prefix=prefix, foreign=tuple(foreign), line=at + 1)
        )
        foreign.clear()
        at = end
    if not sections:
        expected = "nodes after the line 'BEFORE FUSION' or 'AFTER FUSION'"
        raise InputError(file=file, expected=expected, found="none", code=CODE)
    return sections, tuple(foreign)


def _end_of_message(lines: list[str], at: int, prefix: str) -> int:
    """The first line after the title at `at` that is not part of its message."""
    stripped = prefix.rstrip(" ")
    end = at + 1
    while end < len(lines) and (lines[end].startswith(prefix) or lines[end] == stripped):
        if TITLE.fullmatch(lines[end]):
            break
        end += 1
    return end


def _require_same_text(dump: InductorDump, text: str, file: str) -> None:
    printed = print_dump(dump)
    if printed == text:
        return
    newline = dump.dialect.newline
    ours, theirs = printed.split(newline), text.split(newline)
    for number, (our, their) in enumerate(zip(ours, theirs), 1):
        if our != their:
            raise InputError(
                file=file, line=number, expected=_quoted(our), found=_quoted(their), code=CODE
            )
    number = min(len(ours), len(theirs))
    expected, found = ("more lines", "the end") if len(ours) > number else ("the end", "more lines")
    raise InputError(file=file, line=number, expected=expected, found=found, code=CODE)


def _quoted(line: str) -> str:
    return f"'{line}'" if line else "a blank line"
