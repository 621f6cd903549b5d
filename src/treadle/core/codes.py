"""The stable codes: every refusal and error that has one also has a page.

A page is the file `pages/CODE.md`; adding that file is all it takes to register a code:

    # OPT001: unknown option

    ## What it means
    ## Example
    ## What to do

The house tests check that codes in the source, pages, and codes in tests are the same set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treadle.core.errors import InternalError, UsageError
from treadle.core.suggest import nearest

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

CODE_SHAPE = re.compile(r"[A-Z]{2,5}[0-9]{3}")
SECTIONS = ("What it means", "Example", "What to do")


@dataclass(frozen=True, slots=True)
class Code:
    """One documented code: `OPT001`, its title, and its page in Markdown."""

    id: str
    title: str
    page: str

    @property
    def family(self) -> str:
        """The letters: `OPT` of `OPT001`."""
        return _family(self.id)


def load_codes() -> dict[str, Code]:
    """Read every page; the result is sorted by code.

    Nothing is kept between calls: pages are read when a person asks, not while compiling.
    """
    codes = (parse_page(name, file.read_text("utf-8")) for name, file in _page_files())
    return {code.id: code for code in sorted(codes, key=lambda code: code.id)}


def explain(code: str) -> str:
    """Return the page of `code`, or raise a UsageError that lists the nearest codes."""
    wanted = code.strip().upper()
    files = dict(_page_files())
    if wanted in files:
        return files[wanted].read_text("utf-8")
    if close := nearest(wanted, files):
        note = f"did you mean: {', '.join(close)}"
    else:
        note = f"codes begin with: {', '.join(sorted({_family(name) for name in files}))}"
    raise UsageError(f"no page for code {code!r}", notes=[note])


def parse_page(name: str, text: str) -> Code:
    """Return the code that page `name` documents; a page without the house shape is refused."""
    if not CODE_SHAPE.fullmatch(name):
        raise InternalError(f"page {name}.md: the file name is not a code such as OPT001")
    title_line, _, _ = text.partition("\n")
    prefix = f"# {name}: "
    if not title_line.startswith(prefix) or not title_line[len(prefix) :].strip():
        raise InternalError(f"page {name}.md: the first line is not '{prefix}<title>'")
    found = tuple(re.findall(r"^## (.+)$", text, re.MULTILINE))
    if found != SECTIONS:
        raise InternalError(
            f"page {name}.md: sections are {', '.join(found) or 'missing'}",
            notes=[f"every page has: {', '.join(SECTIONS)}"],
        )
    return Code(name, title_line[len(prefix) :].strip(), text)


def _family(code: str) -> str:
    return code.rstrip("0123456789")


def _page_files() -> Iterator[tuple[str, Traversable]]:
    from importlib.resources import files  # heavy, and only explain and the tests come here

    for file in files("treadle.core").joinpath("pages").iterdir():
        if file.name.endswith(".md"):
            yield file.name.removesuffix(".md"), file
