"""Sizes and docstrings: short functions, small files, a promise on everything public."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house_tree import FUNCTION, Module, all_modules, functions

LONGEST_FUNCTION = 60
LONGEST_FILE = 600

TABLE_VALUES = (ast.Name, ast.Attribute, ast.Constant, ast.Lambda)
NEEDS_NO_DOCSTRING = ("overload", "override", ".setter", ".deleter")


def functions_are_short(module: Module) -> Iterator[str]:
    for function in functions(module.tree):
        assert function.end_lineno is not None
        lines = function.end_lineno - function.lineno + 1 - _table_lines(function)
        if lines > LONGEST_FUNCTION:
            message = f"function '{function.name}' has {lines} lines of at most {LONGEST_FUNCTION}"
            yield module.at(function.lineno, message)


def _table_lines(function: ast.AST) -> int:
    """Lines that are a dispatch table, which is data and may be as long as it needs to be."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Dict)
        and len(node.values) > 3
        and all(isinstance(value, TABLE_VALUES) for value in node.values)
    )


def files_are_small(module: Module) -> Iterator[str]:
    if module.line_count > LONGEST_FILE:
        yield module.at(1, f"has {module.line_count} lines of at most {LONGEST_FILE}")


def public_things_have_a_docstring(module: Module) -> Iterator[str]:
    name = module.path.rpartition("/")[2]
    if not name.startswith("_") or name == "__init__.py":
        yield from _without_docstring(module, module.tree, "the module")


def _without_docstring(module: Module, node: ast.Module | ast.ClassDef, what: str) -> Iterator[str]:
    if not _first_docstring_line(node):
        yield module.at(getattr(node, "lineno", 1), f"{what} has no docstring")
    promised = _promised_by_bases(module, node)
    for child in node.body:
        if getattr(child, "name", "_").startswith("_"):
            continue
        if isinstance(child, ast.ClassDef):
            yield from _without_docstring(module, child, f"class '{child.name}'")
        elif isinstance(child, FUNCTION) and not _first_docstring_line(child):
            decorators = [ast.unparse(decorator) for decorator in child.decorator_list]
            excused = any(one.endswith(NEEDS_NO_DOCSTRING) for one in decorators)
            if not excused and child.name not in promised:
                yield module.at(child.lineno, f"function '{child.name}' has no docstring")


def _promised_by_bases(module: Module, node: ast.Module | ast.ClassDef) -> set[str]:
    """Methods that a base class documents: an override keeps the promise made there."""
    promised: set[str] = set()
    pending, seen = _base_names(node), set[str]()
    while pending:
        seen.add(name := pending.pop())
        for base in _classes_called(name, module):
            pending |= _base_names(base) - seen
            promised |= {f.name for f in functions(base) if _first_docstring_line(f)}
    return promised


def _classes_called(name: str, module: Module) -> list[ast.ClassDef]:
    places = (module, *all_modules())
    return [one for place in places for one in place.classes if one.name == name]


def _base_names(node: ast.Module | ast.ClassDef) -> set[str]:
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in bases}


def _first_docstring_line(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> str:
    return (ast.get_docstring(node, clean=False) or "").split("\n")[0].strip()
