"""The context: one frozen bundle, and a journal that fits the options."""

import dataclasses

import pytest

from treadle.analysis.devices import DEVICES
from treadle.core import CostModel, Ctx, Journal, Options, journal_for


class FlatCost:
    def op_ns(self, op: object) -> float:
        return 1.0

    def machine(self, device: str) -> object:
        return DEVICES["cpu"]

    def latency_ns(self, a: object, b: object) -> float:
        return 0.0


class HalfACost:
    def op_ns(self, op: object) -> float:
        return 1.0


def test_a_context_is_frozen() -> None:
    ctx = Ctx(Options(), FlatCost(), Journal())
    with pytest.raises(dataclasses.FrozenInstanceError):
        ctx.options = Options(check=3)  # type: ignore[misc]


def test_a_cost_model_answers_both_questions() -> None:
    assert isinstance(FlatCost(), CostModel)
    assert not isinstance(HalfACost(), CostModel)


@pytest.mark.parametrize(
    "values, level",
    [({}, 0), ({"debug": 3}, 3), ({"explain": True}, 4), ({"explain": True, "debug": 5}, 5)],
)
def test_the_journal_keeps_what_the_options_ask_for(values: dict[str, int], level: int) -> None:
    journal = journal_for(Options.make(**values))
    assert (journal.enabled, journal.level) == (True, level)
