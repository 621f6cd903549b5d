"""The index algebra against plain evaluation at every point of small loops."""

from __future__ import annotations

from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.index import (
    Domain,
    Expr,
    Facts,
    IndexMap,
    coefficient,
    const,
    evaluate,
    floordiv,
    loop,
    maximum,
    minimum,
    mod,
    parse,
    show,
    show_sympy,
    size,
    substitute,
)

I, J = loop("i"), loop("j")
N = size("n", 1, 6)
M = size("m", 4, 12, divisor=4)


@st.composite
def trees(draw: st.DrawFn, depth: int = 4) -> tuple:
    """An operation tree as plain tuples, so that it can be evaluated without the algebra."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(
            st.one_of(
                st.sampled_from([("var", "i"), ("var", "j"), ("var", "n"), ("var", "m")]),
                st.integers(-9, 40).map(lambda n: ("const", n)),
            )
        )
    op = draw(st.sampled_from(["add", "sub", "mul", "div", "mod", "min", "max"]))
    left = draw(trees(depth=depth - 1))
    if op in ("div", "mod"):
        right = draw(
            st.one_of(
                st.sampled_from([1, 2, 3, 4, 6, 8, 12, -1, -3]).map(lambda n: ("const", n)),
                st.just(("var", "n")),
            )
        )
    elif op == "mul":
        right = draw(st.one_of(st.integers(-4, 12).map(lambda n: ("const", n)), trees(depth=1)))
    else:
        right = draw(trees(depth=depth - 1))
    return (op, left, right)


def plain(tree: tuple, point: dict[str, int]) -> int:
    """The value of a tree by Python's own arithmetic."""
    if tree[0] == "var":
        return point[tree[1]]
    if tree[0] == "const":
        return tree[1]
    a, b = plain(tree[1], point), plain(tree[2], point)
    table = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "div": lambda: a // b,
        "mod": lambda: a % b,
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
    }
    return table[tree[0]]()


def build(tree: tuple) -> Expr:
    """The same tree through the algebra."""
    if tree[0] == "var":
        return {"i": I, "j": J, "n": N, "m": M}[tree[1]]
    if tree[0] == "const":
        return const(tree[1])
    a, b = build(tree[1]), build(tree[2])
    table = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "div": lambda: floordiv(a, b),
        "mod": lambda: mod(a, b),
        "min": lambda: minimum(a, b),
        "max": lambda: maximum(a, b),
    }
    return table[tree[0]]()


extents = st.sampled_from([1, 2, 3, 4, 6, 12])


def points(rows: int, columns: int) -> list[dict[str, int]]:
    return [
        {"i": i, "j": j, "n": n, "m": m}
        for i in range(rows)
        for j in range(columns)
        for n, m in ((1, 4), (2, 12), (5, 8), (6, 4))
    ]


def at(e: Expr, p: dict[str, int]) -> int:
    return evaluate(e, {I: p["i"], J: p["j"], N: p["n"], M: p["m"]})


@settings(max_examples=examples(200), deadline=None)
@given(trees(), extents, extents)
def test_construction_simplification_bounds_and_proofs_agree_with_evaluation(
    tree: tuple, rows: int, columns: int
) -> None:
    e = build(tree)
    facts = Domain([(I, rows), (J, columns)]).facts
    simple = facts.simplify(e)
    low, high = facts.interval(e)
    proved = facts.nonnegative(e)
    divisor = facts.divisor(e)
    for p in points(rows, columns):
        value = plain(tree, p)
        assert at(e, p) == value
        assert at(simple, p) == value, (str(e), str(simple), p)
        assert low is None or low <= value
        assert high is None or value <= high
        assert value >= 0 or not proved, (str(e), p)
        assert value == 0 or (divisor and value % divisor == 0)
    assert facts.simplify(simple) is simple


@settings(max_examples=examples(150), deadline=None)
@given(trees())
def test_text_comes_back_in_both_dialects(tree: tuple) -> None:
    e = build(tree)
    scope = {"n": N, "m": M}
    assert parse(show(e), scope) is e
    assert parse(show_sympy(e), scope) is e


@settings(max_examples=examples(150), deadline=None)
@given(trees(), trees(depth=2))
def test_substitution_is_evaluation_of_the_replacement(tree: tuple, other: tuple) -> None:
    replaced = substitute(build(tree), {I: build(other)})
    for p in points(2, 3):
        inner = plain(other, p)
        assert at(replaced, p) == plain(tree, {**p, "i": inner})


@settings(max_examples=examples(150), deadline=None)
@given(trees())
def test_a_stride_is_the_difference_of_neighbours(tree: tuple) -> None:
    e = build(tree)
    stride = coefficient(e, I)
    if stride is None:
        return
    for p in points(3, 2):
        step = plain(tree, {**p, "i": p["i"] + 1}) - plain(tree, p)
        assert at(stride, p) == step


def walk(m: IndexMap) -> list[int]:
    return [evaluate(m.index, p) for p in m.domain.points()]


@st.composite
def walks(draw: st.DrawFn) -> IndexMap:
    """Affine accesses, some with the divisions that merged loops leave behind."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3))
    names = ["a", "b", "c"][: len(sizes)]
    domain = Domain([(loop(v), n) for v, n in zip(names, sizes, strict=True)])
    e: Expr = const(draw(st.integers(0, 3)))
    for v, n in domain.items():
        term: Expr = v
        cuts = [d for d in (2, 3) if n.value and n.value % d == 0]
        if cuts and draw(st.booleans()):
            d = draw(st.sampled_from(cuts))
            term = draw(st.integers(0, 4)) * (v // d) + draw(st.integers(0, 6)) * (v % d)
        else:
            term = v * draw(st.sampled_from([0, 1, 2, 3, 4, 6, 12, -1]))
        e = e + term
    return IndexMap.of(domain, e)


@settings(max_examples=examples(200), deadline=None)
@given(walks(), walks())
def test_sequence_forms_are_equal_exactly_when_the_walks_are(a: IndexMap, b: IndexMap) -> None:
    assert walk(a.sequence_form()) == walk(a)
    assert (a.sequence_form() == b.sequence_form()) == (walk(a) == walk(b))
    again = a.sequence_form()
    assert again.sequence_form() == again


@settings(max_examples=examples(150), deadline=None)
@given(walks())
def test_set_form_touches_the_same_elements(a: IndexMap) -> None:
    assert set(walk(a.set_form())) == set(walk(a))


@settings(max_examples=examples(150), deadline=None)
@given(st.permutations(range(3)), st.lists(st.sampled_from([1, 2, 3, 4]), min_size=3, max_size=3))
def test_inverting_twice_gives_the_map_back(order: list[int], sizes: list[int]) -> None:
    domain = Domain.fresh(sizes, "v")
    shape = [sizes[k] for k in order]
    m = IndexMap.of(domain, *[domain.vars[k] for k in order])
    back = m.invert(shape)
    assert back is not None
    for p in domain.points():
        image = [evaluate(r, p) for r in m.results]
        there = dict(zip(back.domain.vars, image, strict=True))
        assert [evaluate(r, there) for r in back.results] == list(p.values())
    again = back.invert(sizes)
    assert again is not None
    assert again.sequence_form() == m.sequence_form()


@settings(max_examples=examples(120), deadline=None)
@given(walks(), st.data())
def test_loop_transformations_keep_the_walk(a: IndexMap, data: st.DataObject) -> None:
    v = data.draw(st.sampled_from(a.domain.vars))
    n = a.domain.extent(v).value
    factor = data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
    cut = a.split(v, factor)
    assert walk(cut) == walk(a)
    outer = cut.domain.vars[a.domain.vars.index(v)]
    assert walk(cut.merge(outer)) == walk(a)


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(st.integers(-6, 6), st.integers(0, 2), st.integers(0, 2), st.integers(1, 4)),
        min_size=1,
        max_size=5,
    )
)
def test_what_is_proved_of_products_of_open_sizes_holds(
    terms: list[tuple[int, int, int, int]],
) -> None:
    s, t = size("s", 2), size("t", 1)
    e = const(0)
    for factor, whole, floors, den in terms:
        one = const(factor)
        for _ in range(whole):
            one = one * t
        for _ in range(floors):
            one = one * (s // den)
        e = e + one + factor * s * min(whole, 1)
    if Facts().nonnegative(e):
        for a in range(2, 14):
            for b in range(1, 6):
                assert evaluate(e, {s: a, t: b}) >= 0
