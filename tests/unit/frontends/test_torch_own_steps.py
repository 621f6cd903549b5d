"""Whose error it is that ends the capture of a graph."""

from __future__ import annotations

from typing import NoReturn

import pytest

pytest.importorskip("torch")

from treadle.frontends.torch.capture.own_steps import OwnSteps

pytestmark = pytest.mark.torch


def fails(words: str) -> NoReturn:
    raise ValueError(words)


def error_of(function: object, *args: object) -> BaseException:
    with pytest.raises(Exception) as found:
        function(*args)  # type: ignore[operator]
    return found.value


def test_the_step_that_raised_is_named_however_torch_wraps_the_error() -> None:
    steps = OwnSteps()
    step = steps.watched("the sum", fails)

    def caused() -> None:
        try:
            step("a")
        except ValueError as e:
            raise RuntimeError("torch says") from e

    def meanwhile() -> None:
        try:
            step("a")
        except ValueError:
            raise RuntimeError("torch says")  # noqa: B904

    assert steps.behind(error_of(step, "a")) == "the sum"
    assert steps.behind(error_of(caused)) == "the sum"
    assert steps.behind(error_of(meanwhile)) == "the sum"


def test_an_error_that_torch_dealt_with_is_nobodys() -> None:
    steps = OwnSteps()
    error_of(steps.watched("the sum", fails), "dealt with")
    assert steps.behind(error_of(fails, "torch's own")) is None
    assert steps.behind(None) is None


def test_the_innermost_step_is_named() -> None:
    steps = OwnSteps()
    outer = steps.watched("the whole", steps.watched("a part", fails))
    assert steps.behind(error_of(outer, "x")) == "a part"


def test_a_step_gives_what_its_function_gives() -> None:
    assert OwnSteps().watched("a difference", lambda a, b: a - b)(b=1, a=3) == 2
