"""Who may import what: layers point down, heavy libraries stay where they belong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

from house_tree import ABOVE_ALL, FUNCTION, LAYERS, Module

TORCH_HOMES = ("frontends/*", "runtime/*")
# The interpreter computes with numpy; everything else must work without it being installed, so
# it asks for numpy only when a function needs it.
NUMPY_HOMES = ("ir/interp*", "testing/*")
NUMPY_IN_FUNCTIONS = (*NUMPY_HOMES, "runtime/*", "frontends/*", "lab/*")


@dataclass(frozen=True)
class Import:
    target: tuple[str, ...]
    line: int
    in_function: bool


def imports(module: Module) -> Iterator[Import]:
    """Every import statement at every depth, and calls that import a name given as a literal."""
    pending: list[tuple[ast.AST, bool]] = [(module.tree, False)]
    while pending:
        node, in_function = pending.pop()
        for target in _targets(module, node):
            yield Import(target, node.lineno, in_function)  # type: ignore[attr-defined]
        inside = in_function or isinstance(node, (*FUNCTION, ast.Lambda))
        pending.extend((child, inside) for child in ast.iter_child_nodes(node))


def _targets(module: Module, node: ast.AST) -> Iterator[tuple[str, ...]]:
    if isinstance(node, ast.Import):
        yield from (tuple(alias.name.split(".")) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        stem = tuple(node.module.split(".")) if node.module else ()
        if node.level:
            stem = module.package[: len(module.package) - node.level + 1] + stem
        yield from ((*stem, alias.name) for alias in node.names)
    elif isinstance(node, ast.Call) and node.args:
        called, first = node.func, node.args[0]
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if (
            name in ("import_module", "__import__")
            and isinstance(first, ast.Constant)
            and isinstance(first.value, str)
        ):
            yield tuple(first.value.split("."))


def layers_point_down(module: Module) -> Iterator[str]:
    if module.layer in (None, ABOVE_ALL):
        return
    if module.layer not in LAYERS:
        yield module.at(1, f"folder '{module.layer}' is not a layer; the layers are {LAYERS}")
        return
    legal = LAYERS[: LAYERS.index(module.layer) + 1]
    for found in imports(module):
        if found.target[0] != "treadle" or len(found.target) < 2:
            continue
        wanted = found.target[1]
        if wanted not in legal and wanted != "__version__":
            yield module.at(found.line, f"layer '{module.layer}' imports '{wanted}' above it")


def torch_stays_home(module: Module) -> Iterator[str]:
    if not _within(module, TORCH_HOMES):
        for found in imports(module):
            if found.target[0] == "torch":
                yield module.at(found.line, f"imports torch; only {TORCH_HOMES} may")


def numpy_stays_home(module: Module) -> Iterator[str]:
    for found in imports(module):
        homes = NUMPY_IN_FUNCTIONS if found.in_function else NUMPY_HOMES
        if found.target[0] == "numpy" and not _within(module, homes):
            place = "in a function" if found.in_function else "at module level"
            yield module.at(found.line, f"imports numpy {place}; only {homes} may")


def _within(module: Module, homes: tuple[str, ...]) -> bool:
    return any(fnmatch(module.path, home) for home in homes)
