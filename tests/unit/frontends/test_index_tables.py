"""Formulas for tables of indices: one that is found has every value of its table."""

from random import Random

import pytest

pytest.importorskip("torch")

from treadle.frontends.torch.lowering.index_tables import fitting, known_index
from treadle.index import Domain, evaluate, loop, maximum, minimum, parse
from treadle.ir.body import Literal, Stmt
from treadle.ir.types import DType

I = loop("i")


@pytest.mark.parametrize(
    "text",
    [
        "i",
        "63 - i",
        "5*i + 2",
        "i // 2",
        "(i + 1) // 2",
        "2*i // 3",
        "max((i - 1) // 2, 0)",
        "min(i + 3, 40)",
        "min(max(i - 4, 0), 50)",
        "min((i + 1) // 2, 31)",
    ],
)
def test_a_formula_is_found(text: str) -> None:
    e = parse(text)
    found = fitting([evaluate(e, {I: i}) for i in range(64)], I)
    assert found is not None
    assert [evaluate(found, {I: i}) for i in range(64)] == [evaluate(e, {I: i}) for i in range(64)]


@pytest.mark.parametrize("text", ["i % 7", "max(i - 9, 9 - i)", "i*i // 8", "17*i // 31"])
def test_should_not_find_a_formula(text: str) -> None:
    assert fitting([evaluate(parse(text), {I: i}) for i in range(64)], I) is None


def test_formulas_of_random_tables_have_their_values() -> None:
    random, seen = Random(0), 0
    for _ in range(600):
        n, a, c = random.randint(2, 40), random.randint(-2, 5), random.randint(1, 9)
        low = random.randint(0, 9)
        e = minimum(maximum((I * a + random.randint(-9, 9)) // c, low), low + random.randint(0, 40))
        table = [evaluate(e, {I: i}) for i in range(n)]
        if random.random() < 0.3:
            table[random.randrange(n)] += random.choice((-1, 1))
        found = fitting(table, I)
        if found is not None:
            seen += 1
            assert [evaluate(found, {I: i}) for i in range(n)] == table
    assert seen > 100


def column(scale: float, shift: float, dtype: DType = DType.F32) -> dict[int, Stmt]:
    """trunc(i * scale + shift), computed in floats."""
    return {
        0: Stmt("index", (), (I + 0, DType.I64)),
        1: Stmt("cast", (0,), (dtype,)),
        2: Stmt("constant", (), (Literal(scale), dtype)),
        3: Stmt("mul", (1, 2)),
        4: Stmt("constant", (), (Literal(shift), dtype)),
        5: Stmt("add", (3, 4)),
        6: Stmt("cast", (5,), (DType.I64,)),
    }


F32 = [DType.I64, *[DType.F32] * 5, DType.I64]


def test_floats_are_rounded_as_their_type_has_them() -> None:
    space, size = Domain([(I, 48)]), parse("64")
    found = known_index(column(0.5, 0.0), F32, 6, space, size)
    assert found is parse("i // 2")
    # A third in f32 is more than a third: every third element begins anew, none too late.
    third = known_index(column(1 / 3, 0.0), F32, 6, space, size)
    assert third is not None
    assert evaluate(third, {I: 3}) == 1


@pytest.mark.parametrize("size", ["20", "n"])
def test_should_not_find_what_leaves_its_size(size: str) -> None:
    space = Domain([(I, 48)])
    assert known_index(column(0.5, 0.0), F32, 6, space, parse(size)) is None


def test_should_not_look_at_data() -> None:
    made = column(0.5, 0.0) | {1: Stmt("load", (), ("x", I + 0, False))}
    assert known_index(made, F32, 6, Domain([(I, 48)]), parse("64")) is None


def test_negative_ones_count_from_the_end() -> None:
    space = Domain([(I, 8)])
    assert known_index(column(1.0, -8.0), F32, 6, space, parse("16"), wrap=True) is parse("i + 8")
    assert known_index(column(1.0, -8.0), F32, 6, space, parse("16")) is None
