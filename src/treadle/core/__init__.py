"""What every layer stands on: errors, codes, verdicts, journal, options, context.

Names are loaded on first use, so importing this package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.core.codes import Code, explain, load_codes
    from treadle.core.context import Ctx, journal_for
    from treadle.core.costs import CostModel
    from treadle.core.errors import (
        InputError,
        InternalError,
        SpecError,
        TreadleError,
        UsageError,
        Violation,
    )
    from treadle.core.journal import Journal
    from treadle.core.options import Options, unknown_variables
    from treadle.core.suggest import nearest, suggestion_notes
    from treadle.core.verdict import YES, Verdict, check_rules, explain_rules, no, yes

# Where each public name lives; the imports above tell type checkers the same thing.
HOME_OF = {
    "Code": "codes",
    "CostModel": "costs",
    "Ctx": "context",
    "InputError": "errors",
    "InternalError": "errors",
    "Journal": "journal",
    "Options": "options",
    "SpecError": "errors",
    "TreadleError": "errors",
    "UsageError": "errors",
    "Verdict": "verdict",
    "Violation": "errors",
    "YES": "verdict",
    "check_rules": "verdict",
    "explain": "codes",
    "explain_rules": "verdict",
    "journal_for": "context",
    "load_codes": "codes",
    "nearest": "suggest",
    "no": "verdict",
    "suggestion_notes": "suggest",
    "unknown_variables": "options",
    "yes": "verdict",
}

__all__ = [
    "YES",
    "Code",
    "CostModel",
    "Ctx",
    "InputError",
    "InternalError",
    "Journal",
    "Options",
    "SpecError",
    "TreadleError",
    "UsageError",
    "Verdict",
    "Violation",
    "check_rules",
    "explain",
    "explain_rules",
    "journal_for",
    "load_codes",
    "nearest",
    "no",
    "suggestion_notes",
    "unknown_variables",
    "yes",
]


if not TYPE_CHECKING:  # a type checker that saw it would believe that every name exists

    def __getattr__(name: str) -> object:
        home = HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value  # the next use finds it without coming here
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
