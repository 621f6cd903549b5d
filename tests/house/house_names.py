"""One name, one meaning: of classes, and of what a statement carries."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping

from house_tree import Module, all_modules

# Name -> why two classes may have it. Stale entries fail a test.
SHARED_NAMES: Mapping[str, str] = {}

# The table of attributes is theirs; kernels and the writer of C are being rewritten.
MAY_COUNT_ATTRIBUTES = ("ir/body.py", "kernel/", "codegen/")


def attributes_have_names(module: Module) -> Iterator[str]:
    if module.path.startswith(MAY_COUNT_ATTRIBUTES):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") == "attrs":
            message = "picks an attribute by its place; use attr(name), buffer, address or mode"
            yield module.at(node.lineno, message)


def class_names_have_one_meaning(module: Module) -> Iterator[str]:
    for one in module.classes:
        others = _homes().get(one.name, frozenset()) - {module.path}
        if others and one.name not in SHARED_NAMES:
            message = f"class '{one.name}' is called like one in {', '.join(sorted(others))}"
            yield module.at(one.lineno, message)


def shared_names() -> set[str]:
    """The names that several files have a class for."""
    return {name for name, files in _homes().items() if len(files) > 1}


@functools.cache
def _homes() -> Mapping[str, frozenset[str]]:
    """The files in which there is a class of each name."""
    found: dict[str, set[str]] = {}
    for module in all_modules():
        for one in module.classes:
            found.setdefault(one.name, set()).add(module.path)
    return {name: frozenset(files) for name, files in found.items()}
