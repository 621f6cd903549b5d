"""The rules in the order in which they are asked: cheap and telling ones first."""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.verdict import Verdict
from treadle.schedule.rules.calls import CALL_RULES, makes_one_operand
from treadle.schedule.rules.data import DATA_RULES
from treadle.schedule.rules.form import KIND_RULES, LIMIT_RULES, SPACE_RULES
from treadle.schedule.rules.pair import Pair

RULES: tuple[Callable[[Pair], Verdict], ...] = (
    *KIND_RULES,
    *CALL_RULES,
    *SPACE_RULES,
    *LIMIT_RULES,
    *DATA_RULES,
)
# A prologue runs wherever the call needs an element: its own points and access maps do not matter.
PROLOGUE_RULES: tuple[Callable[[Pair], Verdict], ...] = (
    *KIND_RULES,
    *CALL_RULES,
    makes_one_operand,
    *LIMIT_RULES,
)


def rules_for(pair: Pair) -> tuple[Callable[[Pair], Verdict], ...]:
    """The rules that decide about a pair."""
    return PROLOGUE_RULES if pair.is_prologue else RULES
