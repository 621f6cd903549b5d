"""A mask proves that what is touched under it is there, and proves nothing that is not so."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.index import as_expr
from treadle.ir.masks import MaskFacts
from treadle.ir.program import Loop
from treadle.ir.text import parse_program

PROGRAM = """treadle 1
program p
inputs x
outputs y

buffer x : f32[4096] on cpu
buffer y : f32[{rows}, {columns}] on cpu

loop n on cpu for i0 in {rows}, i1 in {columns} {{
{mask}
  %{last} = masked %{condition} else 0.0 {{
    %{inside} = load x[{index}]
    yield %{inside}
  }}
  store y[{columns}*i0 + i1] = %{last}
}}
"""


def is_proven(mask: list[str], index: str, limit: int, shape: tuple[int, int] = (8, 32)) -> bool:
    lines = "\n".join(f"  %{k} = {line}" for k, line in enumerate(mask))
    text = PROGRAM.format(rows=shape[0], columns=shape[1], mask=lines, condition=len(mask) - 1,
                          last=len(mask), inside=len(mask) + 1, index=index)  # fmt: skip
    (op,) = parse_program(text).leaves
    assert isinstance(op, Loop)
    ((_, found, _),) = op.body.loads()
    return MaskFacts(op.body).within(found, as_expr(limit), [len(mask) - 1])


HALF = ["index ((i1 + 1) // 2) as i64", "index 16 as i64", "lt %0, %1"]
BACK = ["index i1 - 4 as i64", "index 0 as i64", "ge %0, %1"]


def test_a_quotient_is_below_what_the_mask_compares_it_with() -> None:
    assert is_proven(HALF, "8*((i1 + 1) // 2) + i0", 128)
    assert not is_proven(HALF, "8*((i1 + 1) // 2) + i0", 127)


def test_a_loop_is_above_what_the_mask_compares_it_with() -> None:
    assert is_proven(BACK, "i1 - 4", 28)
    assert not is_proven(BACK, "i1 - 5", 28)


def test_both_sides_of_an_and_count() -> None:
    both = [*BACK, "index i1 as i64", "constant 20 i64", "lt %3, %4", "logical_and %2, %5"]
    assert is_proven(both, "i1 - 4", 16)
    assert not is_proven([*both[:-1], "logical_or %2, %5"], "i1 - 4", 16)


def test_a_mask_that_is_never_true_allows_everything() -> None:
    never = ["index i1 as i64", "constant 32 i64", "ge %0, %1"]
    assert is_proven(never, "i1 + 4000", 1)


@pytest.mark.parametrize("dtype", ["i8", "u8", "f32"])
def test_what_may_wrap_or_round_proves_nothing(dtype: str) -> None:
    mask = [f"index i1 - 4 as {dtype}", f"index 0 as {dtype}", "ge %0, %1"]
    assert not is_proven(mask, "i1 - 4", 28)


OPERATORS = {
    "lt": int.__lt__,
    "le": int.__le__,
    "gt": int.__gt__,
    "ge": int.__ge__,
    "eq": int.__eq__,
}
PARTS = ("i0", "i1", "((i1 + 1) // 2)", "((i0 + 2) // 3)", "(i1 % 5)")


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, int, str, int]:
    part, times = draw(st.sampled_from(PARTS)), draw(st.sampled_from((-3, -1, 1, 2)))
    compare = draw(st.sampled_from(sorted(OPERATORS)))
    return part, times, compare, draw(st.integers(-12, 12))


@given(
    st.lists(comparisons(), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(PARTS), st.integers(-3, 8)), min_size=1, max_size=3),
    st.integers(-8, 8),
    st.integers(1, 60),
)
def test_what_is_proven_is_so_at_every_point(
    conditions: list[tuple[str, int, str, int]],
    terms: list[tuple[str, int]],
    offset: int,
    limit: int,
) -> None:
    rows, columns = 5, 9
    mask: list[str] = []
    flags: list[int] = []
    for part, times, compare, number in conditions:
        mask += [f"index {times}*{part} as i64", f"index {number} as i64"]
        mask.append(f"{compare} %{len(mask) - 2}, %{len(mask) - 1}")
        flags.append(len(mask) - 1)
    while len(flags) > 1:
        mask.append(f"logical_and %{flags.pop()}, %{flags.pop()}")
        flags.append(len(mask) - 1)
    index = " + ".join(f"{times}*{part}" for part, times in terms) + f" + {offset}"
    if not is_proven(mask, index.replace("+ -", "- "), limit, (rows, columns)):
        return
    for i0, i1 in product(range(rows), range(columns)):
        values = {"i0": i0, "i1": i1, "((i1 + 1) // 2)": (i1 + 1) // 2,
                  "((i0 + 2) // 3)": (i0 + 2) // 3, "(i1 % 5)": i1 % 5}  # fmt: skip
        if all(OPERATORS[c](times * values[part], n) for part, times, c, n in conditions):
            at = sum(times * values[part] for part, times in terms) + offset
            assert 0 <= at < limit, (i0, i1, at)
