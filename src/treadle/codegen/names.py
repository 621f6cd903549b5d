"""Names in generated text: readable, legal in every target language, never the same twice."""

from __future__ import annotations

import re

_ODD = re.compile(r"[^0-9A-Za-z]+")
LONGEST = 40


def plain(name: str) -> str:
    """The letters and digits of `name`, other characters replaced, cut to a readable length."""
    return _ODD.sub("_", name).strip("_")[:LONGEST].strip("_") or "x"


class Names:
    """Hands out identifiers: a prefix, a number that makes it unique, a readable rest."""

    def __init__(self) -> None:
        self._count = 0

    def fresh(self, prefix: str, hint: str = "") -> str:
        """`prefix` with the next number, and `hint` made legal: k3_softmax."""
        number, self._count = self._count, self._count + 1
        return f"{prefix}{number}_{plain(hint)}" if hint else f"{prefix}{number}"
