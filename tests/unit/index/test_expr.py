"""Canonical form: equal expressions are one object."""

import copy
import gc
import pickle

import pytest

from treadle.index import const, floordiv, indirect, loop, maximum, minimum, mod, parse, size
from treadle.index.expr import _TABLE, Const, Symbol

I, J, S = loop("i"), loop("j"), size("s")


@pytest.mark.parametrize(
    "left, right",
    [
        ("i + j", "j + i"),
        ("2*(i + j)", "2*i + 2*j"),
        ("(i + 1)*(j - 2)", "i*j - 2*i + j - 2"),
        ("i - i", "0"),
        ("(12*i + j)//4", "3*i + j//4"),
        ("(8*i + 3)//12", "(2*i)//3"),
        ("(i//4)//3", "i//12"),
        ("(i//4 + 2)//3", "(i + 8)//12"),
        ("(i % 12)//4", "(i//4) % 3"),
        ("(i % 12) % 4", "i % 4"),
        ("(i % 12 + j) % 4", "(i + j) % 4"),
        ("(7*i + 9) % 3", "i % 3"),
        ("(4*i + 2) % 8", "4*(i % 2) + 2"),
        ("4*(i//4) + i % 4", "i"),
        ("12*(i//4) + 3*(i % 4)", "3*i"),
        ("2*(i//12) % 1 + 0", "0"),
        ("4*(i//12) + (i//3) % 4", "i//3"),
        ("(-i) // (-3)", "i // 3"),
        ("(-i) % 12", "(11*i) % 12"),
        ("(5*i) % 8", "(-3*i) % 8"),
        ("i // (-3)", "(-i) // 3"),
        ("i % (-3)", "-((-i) % 3)"),
        ("min(i, i + 3, 5)", "min(5, i)"),
        ("max(i, max(i - 1, j))", "max(j, i)"),
        ("(i + 5)//3", "1 + (i + 2)//3"),
        ("ModularIndexing(i, 4, 3)", "(i//4) % 3"),
        ("CeilDiv(i, 4)", "-((-i)//4)"),
        ("i**3", "i*i*i"),
    ],
)
def test_equal_by_law_is_the_same_object(left: str, right: str) -> None:
    assert parse(left) is parse(right)


@pytest.mark.parametrize(
    "left, right",
    [("i", "j"), ("i//2", "i//3"), ("i % 2", "i // 2"), ("min(i, j)", "max(i, j)"), ("i", "i + 1")],
)
def test_different_expressions_should_not_be_equal(left: str, right: str) -> None:
    assert parse(left) is not parse(right)


def test_symbolic_divisors_cancel() -> None:
    assert floordiv(S * I + J, S) is I + floordiv(J, S)
    assert mod(S * I + J, S) is mod(J, S)
    assert S * floordiv(J, S) + mod(J, S) is J
    assert floordiv(S, S) is const(1)
    assert floordiv(6 * S * I, 2 * S) is 3 * I


def test_remainders_of_declared_multiples_vanish() -> None:
    e = size("e", 8, 64, divisor=8)
    assert mod(e, 8) is const(0)
    assert mod(3 * e + I, 4) is mod(I, 4)
    assert mod(e, 16) is not const(0)


def test_a_symbol_is_its_name_kind_and_facts() -> None:
    assert size("n", 1, 8) is not size("n", 1, 9)
    assert loop("n") is not size("n")
    assert indirect("n", 0, 3) is indirect("n", 0, 3)


def test_copies_and_pickles_are_the_same_object() -> None:
    e = minimum(3 * I + J // 4, S * I % 7, maximum(I, J))
    assert pickle.loads(pickle.dumps(e)) is e
    assert copy.deepcopy(e) is e
    assert copy.copy(e) is e


def test_unused_expressions_are_forgotten() -> None:
    gc.collect()
    before = len(_TABLE)
    kept = [loop(f"temporary{k}") * 1_000_003 + 77_777 for k in range(100)]
    assert len(_TABLE) > before + 100
    del kept
    gc.collect()
    assert len(_TABLE) <= before + 5


def test_division_by_zero_is_refused() -> None:
    with pytest.raises(ZeroDivisionError, match="// 0"):
        floordiv(I, 0)
    with pytest.raises(ZeroDivisionError, match="% 0"):
        mod(I, 0)


@pytest.mark.parametrize(
    "facts, message",
    [
        ({"lo": 5, "hi": 3}, "empty range"),
        ({"lo": 1, "divisor": 0}, "divisor must be at least 1"),
        ({"lo": 1, "hi": 7, "divisor": 8}, "no multiple of 8 lies in 1..7"),
        ({"lo": 1, "hi": 8, "hint": 9}, "hint 9 is outside"),
        ({"lo": 1, "divisor": 8, "hint": 12}, "hint 12 is outside"),
    ],
)
def test_contradictory_facts_about_a_size_are_refused(facts: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        size("n", **facts)


def test_sorting_does_not_depend_on_creation_order() -> None:
    late = [loop(n) for n in ("zz9", "aa9", "mm9")]
    assert str(late[0] + late[1] + late[2]) == "aa9 + mm9 + zz9"


def test_python_numbers_mix_on_both_sides() -> None:
    assert 3 + I is I + 3
    assert 3 - I is -(I - 3)
    assert 2 * I is I * 2
    assert 7 // const(2) is const(3)
    assert 7 % const(4) is const(3)


def test_constants_have_values_and_symbols_have_not() -> None:
    assert (I - I + 4).value == 4
    assert I.value is None
    assert isinstance(const(3), Const)
    assert isinstance(I, Symbol)
