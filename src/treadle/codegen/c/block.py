"""Text under construction: nested blocks, each with declarations at its top.

What a loop's variables decide once is declared at the top of that loop, whenever it turns out to
be needed: a block keeps its head apart from its lines until it is rendered.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.index import Expr, Symbol

INDENT = "    "


class CodeBlock:
    """Lines and inner blocks between braces, after an opening such as a `for`."""

    __slots__ = ("head", "known", "opening", "parts")

    def __init__(self, opening: str = "") -> None:
        self.opening = opening
        self.head: list[str] = []
        self.parts: list[str | CodeBlock] = []
        self.known: dict[Expr, str] = {}

    def add(self, *lines: str) -> None:
        """Append lines."""
        self.parts.extend(lines)

    def open(self, opening: str) -> CodeBlock:
        """Append an inner block."""
        inner = CodeBlock(opening)
        self.parts.append(inner)
        return inner

    def lines(self, depth: int = 0) -> Iterator[str]:
        """The text, line by line; a block without opening stands in its parent's braces."""
        inside = depth + 1 if self.opening else depth
        if self.opening:
            yield INDENT * depth + self.opening + " {"
        for line in self.head:
            yield INDENT * inside + line
        for part in self.parts:
            if isinstance(part, CodeBlock):
                yield from part.lines(inside)
            else:
                yield INDENT * inside + part
        if self.opening:
            yield INDENT * depth + "}"


class Loops:
    """The open loops, outermost first: which block each variable is bound in, by which name."""

    def __init__(self, top: CodeBlock) -> None:
        self.blocks = [top]
        self.variables: list[Symbol | None] = [None]
        self.names: dict[Symbol, str] = {}

    def push(self, variable: Symbol, name: str, extent: str) -> None:
        """Open a loop inside the innermost one."""
        self.open(f"for (int64_t {name} = 0; {name} < {extent}; ++{name})", variable, name)

    def open(self, opening: str, variable: Symbol | None = None, name: str = "") -> CodeBlock:
        """Open a loop that reads as given; it may bind a variable, by a name."""
        inner = self.blocks[-1].open(opening)
        self.blocks.append(inner)
        self.variables.append(variable)
        if variable is not None:
            self.names[variable] = name
        return inner

    def pop(self, count: int = 1) -> None:
        """Close the innermost loops."""
        for _ in range(count):
            self.blocks.pop()
            variable = self.variables.pop()
            if variable is not None:
                del self.names[variable]

    @property
    def innermost(self) -> CodeBlock:
        """Where statements go now."""
        return self.blocks[-1]

    def home_of(self, e: Expr) -> CodeBlock:
        """The outermost block in which every loop variable of `e` is bound."""
        depth = max((k for k, v in enumerate(self.variables) if v in e.free), default=0)
        return self.blocks[depth]
