"""The error tree: exit codes, pickling, and that hostile text stays on one line."""

import copy
import pickle

import pytest

from treadle.core import (
    InputError,
    InternalError,
    SpecError,
    TreadleError,
    UsageError,
    Violation,
)

EXIT_CODES = {TreadleError: 1, InputError: 2, UsageError: 2, SpecError: 1, InternalError: 1}

SAMPLES = [
    TreadleError("a", code="OPT001", notes=["b"]),
    InputError(file="f", line=1, column=2, expected="x", found="y", code="PIPE003"),
    UsageError("a", notes=("b",)),
    SpecError("a", [Violation("IR001", "b", "op3")]),
    InternalError("a"),
]


def test_every_class_has_its_exit_code() -> None:
    assert {type(error): error.exit_code for error in SAMPLES} == EXIT_CODES
    in_core = {c for c in TreadleError.__subclasses__() if c.__module__.startswith("treadle.core")}
    assert in_core < set(EXIT_CODES)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying_with_everything_they_carry(
    error: TreadleError,
) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_an_input_error_carries_the_place_and_both_halves() -> None:
    error = InputError(file="f", line=1, column=2, expected="x", found="y\n")
    assert (error.file, error.line, error.column) == ("f", 1, 2)
    assert (error.expected, error.found) == ("x", "y\n")


def test_should_not_break_the_line_however_hostile_the_input() -> None:
    error = InputError(file="a\nb", line=1, expected="x", found="'\x1b[2J\r\n\u2028'" + "z" * 1000)
    assert len(str(error).splitlines()) == 1
    assert str(error).startswith("a\\nb:1: expected x, found '\\x1b[2J\\r\\n\\u2028'zz")
    assert str(error).endswith("zzz...")
    assert len(str(error)) < 200


def test_should_not_make_a_spec_error_without_a_violation() -> None:
    with pytest.raises(InternalError, match="at least one violation"):
        SpecError("a", [])


def test_a_spec_error_keeps_all_violations_though_it_shows_ten() -> None:
    error = SpecError("a", [Violation("IR001", str(n)) for n in range(12)])
    assert len(error.violations) == 12
    shown = [f"  IR001: {n}" for n in range(10)]
    assert str(error).splitlines()[1:-1] == [*shown, "  and 2 more"]
