"""One name, one meaning: of classes, of what a statement carries; the field's words."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping

from house_tree import Module, all_modules

# Name -> why two classes may have it. Stale entries fail a test.
SHARED_NAMES: Mapping[str, str] = {}

# The table of attributes is theirs; kernels and the writer of C are being rewritten.
MAY_COUNT_ATTRIBUTES = ("ir/body.py", "kernel/", "codegen/")

# Words we had for things that have a name; the glossary has the names.
OUR_WORDS = {
    "heir": "in-place reuse",
    "spot": "placed layout",
    "tenant": "suballocation",
}


def words_are_the_fields(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        name = getattr(node, "name", None) or getattr(node, "arg", None) or getattr(node, "id", "")
        for word in _words(name) & OUR_WORDS.keys() if isinstance(name, str) else ():
            line = getattr(node, "lineno", 1)
            yield module.at(line, f"'{name}' says {word}; the word is {OUR_WORDS[word]}")


def _words(name: str) -> set[str]:
    """The words of an identifier, in the singular: `by_heirs` and `ByHeirs` are by, heir."""
    return {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+", name)}


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
