"""One name, one meaning: no class is called like a class of another file."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from house_tree import Module, all_modules

# Name -> why two classes may have it. Stale entries fail a test.
SHARED_NAMES: Mapping[str, str] = {
    "Block": "bytes of a memory problem, lines of C: the writer of C is being rewritten",
    "Life": "of a step list, of a run: one of the two goes with the second run planner",
    "Memory": "of the interpreter, of a run on torch tensors: the latter moves to runtime/",
    "Pass": "of the pipeline, over inner loops: stages of kernels are being rewritten",
    "Spot": "of an arena, of a layout: both go with the second run planner",
}


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
