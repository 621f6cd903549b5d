"""Intervals are never too small and proofs never wrong; what should be provable is proved."""

import pytest

from treadle.index import Domain, Facts, Interval, const, indirect, loop, parse, size
from treadle.index.bounds import hint

D = Domain.of(i=128, j=256)
S = size("s", 2, 4096, divisor=8, hint=64)
T = size("t", 1)
SCOPE = {"s": S, "t": T}
SYMBOLIC = Domain([(loop("i"), S), (loop("j"), T), (loop("k"), 16)])


@pytest.mark.parametrize(
    "text, low, high",
    [
        ("256*i + j", 0, 32767),
        ("i - j", -255, 127),
        ("(256*i + j)//256", 0, 127),
        ("j % 7", 0, 6),
        ("i % 1000", 0, 127),
        ("min(i, 5)", 0, 5),
        ("max(i, 5)", 5, 127),
        ("i*j", 0, 127 * 255),
        ("-i//3", -43, 0),
        ("(i + j)//(i + 1)", 0, 382),
    ],
)
def test_interval(text: str, low: int, high: int) -> None:
    assert D.facts.interval(parse(text)) == (low, high)


@pytest.mark.parametrize(
    "text, limit",
    [
        ("t*i + j", "s*t"),
        ("16*t*i + 16*j + k", "16*s*t"),
        ("16*i + k", "16*s"),
        ("s - 1 - i", "s"),
        ("(t*i + j)//t", "s"),
        ("j % t", "t"),
        ("(16*j + k)//16", "t"),
        ("i*t - i + j", "s*t"),
        ("min(i, t - 1)", "t"),
    ],
)
def test_within_is_proved_over_run_time_sizes(text: str, limit: str) -> None:
    facts = SYMBOLIC.facts
    assert facts.within(parse(text, SCOPE), parse(limit, SCOPE))


FLAT = Domain([(loop("i"), S * T), (loop("k"), S // 2), (loop("m"), S // 8)])


@pytest.mark.parametrize(
    "text, limit",
    [
        ("s*(i % t) + i//t", "s*t"),
        ("t*(i % s) + i//s", "s*t"),
        ("2*k + 1", "s"),
        ("8*m + 7", "s"),
        ("s % 8", "1"),
    ],
)
def test_within_is_proved_for_flattened_transposes_and_halves(text: str, limit: str) -> None:
    assert FLAT.facts.within(parse(text, SCOPE), parse(limit, SCOPE))


@pytest.mark.parametrize("text, limit", [("s*(i % s) + i//t", "s*t"), ("2*k + 2", "s")])
def test_flattened_accesses_that_leave_should_not_pass(text: str, limit: str) -> None:
    assert not FLAT.facts.within(parse(text, SCOPE), parse(limit, SCOPE))


@pytest.mark.parametrize(
    "text, limit",
    [
        ("t*i + j + 1", "s*t"),
        ("i", "t"),
        ("i - 1", "s"),
        ("2*i", "s"),
        ("j", "16"),
        ("t*i + k", "s*t"),
    ],
)
def test_within_should_not_be_proved_where_it_can_fail(text: str, limit: str) -> None:
    assert not SYMBOLIC.facts.within(parse(text, SCOPE), parse(limit, SCOPE))


def test_a_loop_variable_of_unknown_extent_has_no_bounds() -> None:
    assert Facts().interval(loop("q")) == Interval(None, None)
    assert not Facts().nonnegative(loop("q"))


def test_an_indirect_value_is_bounded_by_what_was_checked() -> None:
    v = indirect("%3")
    assert Facts({v: 10}).within(v * 4 + 3, 40)
    assert not Facts().nonnegative(v)


@pytest.mark.parametrize(
    "text, divisor", [("8*i + 12", 4), ("s", 8), ("6*s", 48), ("s*t", 8), ("s + 3", 1), ("0", 0)]
)
def test_divisor(text: str, divisor: int) -> None:
    assert Facts().divisor(parse(text, SCOPE)) == divisor


def test_multiple_of_uses_declared_divisors() -> None:
    assert Facts().multiple_of(S * 3, 24)
    assert not Facts().multiple_of(S + 4, 8)


def test_hints_of_sizes_give_likely_values() -> None:
    assert hint(S * 2 + 1) == 129
    assert hint(T) == 1
    assert hint(const(7)) == 7


def test_empty_loops_do_not_break_intervals() -> None:
    assert Domain.of(i=0).facts.interval(loop("i")) == (0, 0)


def test_windows_of_an_open_size_stay_inside() -> None:
    n, s = size("n", 2), size("s", 2)
    i, j, k = loop("i"), loop("j"), loop("k")
    facts = Facts({i: n, j: s // 2, k: s // 2})
    corner = i * s * s + 2 * j * s + 2 * k
    assert facts.within(corner + s + 1, n * s * s)
    assert not facts.within(corner + s + 2, n * s * s)
    assert not facts.within(corner + 2 * s, n * s * s)


def test_a_quotient_times_what_may_be_negative_is_not_bounded_by_its_whole() -> None:
    s, d = size("s", 2), size("d", -3, 3)
    assert not Facts().nonnegative(d * s - 2 * d * (s // 2))
