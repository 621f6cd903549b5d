"""Asserts say what they rely on: one that fails is then a sentence, not a line number."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house_tree import Module


def asserts_say_something(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assert) and node.msg is None and not _only_narrows(node.test):
            shown = ast.unparse(node.test)[:60]
            yield module.at(node.lineno, f"'assert {shown}' does not say what it relies on")


def _only_narrows(test: ast.expr) -> bool:
    """Whether an assert is there for the type checker: `isinstance`, which names the type."""
    if isinstance(test, ast.BoolOp):
        return all(map(_only_narrows, test.values))
    return isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance"
