"""The source tree as data: every module parsed once, with the layer it belongs to."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "treadle"

# From the bottom up, as in the design: a layer imports only itself and what stands before it.
LAYERS = (
    "core",
    "index",
    "ir",
    "analysis",
    "memory",
    "kernel",
    "schedule",
    "codegen",
    "runtime",
    "page",
    "frontends",
    "lab",
)
ABOVE_ALL = "testing"  # may import anything; nothing may import it


@dataclass(frozen=True)
class Module:
    """One source file; `path` is relative to the package: `core/errors.py`."""

    path: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @functools.cached_property
    def classes(self) -> tuple[ast.ClassDef, ...]:
        """Every class at every depth."""
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    @property
    def layer(self) -> str | None:
        """The top folder, or None for files directly in the package."""
        parts = PurePosixPath(self.path).parts
        return parts[0] if len(parts) > 1 else None

    @property
    def package(self) -> tuple[str, ...]:
        """The dotted name, as parts, that relative imports start from."""
        return ("treadle", *PurePosixPath(self.path).parts[:-1])

    @property
    def dotted(self) -> str:
        """The name to import it by."""
        name = PurePosixPath(self.path).stem
        return ".".join((*self.package, *([] if name == "__init__" else [name])))

    @property
    def line_count(self) -> int:
        return len(self.text.splitlines())

    def at(self, line: int, message: str) -> str:
        """A finding, in the form editors can jump to."""
        return f"src/treadle/{self.path}:{line}: {message}"


@functools.cache
def all_modules() -> tuple[Module, ...]:
    files = sorted(PACKAGE.rglob("*.py"))
    return tuple(
        Module(file.relative_to(PACKAGE).as_posix(), file.read_text("utf-8")) for file in files
    )


FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function at every depth."""
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTION))
