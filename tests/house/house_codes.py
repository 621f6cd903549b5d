"""Codes, pages and tests are one set: where each code is written down."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from house_tree import PACKAGE, ROOT, Module

from treadle.core.codes import CODE_SHAPE

# Code -> what will raise it: pages written ahead of the source. Stale entries fail a test.
AWAITED: dict[str, str] = {}

WORD = re.compile(rf"\b{CODE_SHAPE.pattern}\b")


def codes_in(modules: Iterable[Module]) -> dict[str, str]:
    """Every string literal that is a code, with the first place it stands at."""
    found: dict[str, str] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if CODE_SHAPE.fullmatch(node.value):
                found.setdefault(node.value, module.at(node.lineno, "").rstrip(": "))
    return found


def codes_of_pages() -> set[str]:
    return {page.stem for page in (PACKAGE / "core" / "pages").glob("*.md")}


def codes_in_tests() -> set[str]:
    """Codes in any test file except these house tests, which name codes for their own ends."""
    found: set[str] = set()
    tests = ROOT / "tests"
    for file in tests.rglob("*.*"):
        is_house = file.relative_to(tests).parts[0] == "house"
        if file.suffix in (".py", ".md", ".txt") and not is_house:
            found.update(WORD.findall(file.read_text("utf-8", errors="replace")))
    return found
