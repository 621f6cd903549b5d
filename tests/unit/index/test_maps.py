"""Index maps: loop transformations, inversion, normal forms."""

import pytest

from treadle.index import Domain, IndexMap, loop, parse, size
from treadle.index.maps import merge_contiguous

S = size("s", 1, divisor=4)
SCOPE = {"s": S}


def m(text: str, **loops: object) -> IndexMap:
    return IndexMap.of(Domain.of(**loops), parse(text, SCOPE))


@pytest.mark.parametrize(
    "one, other",
    [
        (m("256*i + j", i=128, j=256), m("k", k=32768)),
        (m("256*i + j", i=128, j=256), m("256*a + 16*b + c", a=128, b=16, c=16)),
        (m("4*(i % 3) + i//3", i=12), m("a + 4*b", a=4, b=3)),
        (m("5", i=1), m("5 + 0*j", j=1)),
        (m("i + 7*k", i=10, k=1), m("j", j=10)),
        (m("j", i=3, j=4), m("b", a=3, b=4)),
        (m("s*i + j", i=4, j=S), m("k", k=4 * S)),
        (m("0", i=6), m("0", i=2, j=3)),
        (m("i", i=0), m("3*j", j=0)),
        (m("(c + 5) % 12", c=12), m("(4*a + b + 5) % 12", a=3, b=4)),
        (m("min(7, c)", c=12), m("min(7, 2*a + b)", a=6, b=2)),
        (m("c//5", c=12), m("(4*a + b)//5", a=3, b=4)),
    ],
)
def test_the_same_walk_has_the_same_sequence_form(one: IndexMap, other: IndexMap) -> None:
    assert one.sequence_form() == other.sequence_form()


@pytest.mark.parametrize(
    "one, other",
    [
        (m("256*i + j", i=128, j=256), m("i + 128*j", i=128, j=256)),
        (m("i", i=3, j=4), m("j", i=3, j=4)),
        (m("i", i=12), m("i", i=13)),
        (m("i + 1", i=12), m("i", i=12)),
        (m("2*i", i=12), m("i", i=12)),
    ],
)
def test_different_walks_should_not_have_the_same_sequence_form(
    one: IndexMap, other: IndexMap
) -> None:
    assert one.sequence_form() != other.sequence_form()


@pytest.mark.parametrize(
    "one, other",
    [
        (m("256*i + j", i=128, j=256), m("256*j + i", i=256, j=128)),
        (m("11 - i", i=12), m("i", i=12)),
        (m("j", i=5, j=4), m("j", j=4)),
        (m("i + 3*j", i=3, j=4), m("k", k=12)),
    ],
)
def test_set_form_forgets_order_and_repetition(one: IndexMap, other: IndexMap) -> None:
    assert one.set_form() == other.set_form()


def test_permute_changes_the_walk_but_not_the_function() -> None:
    a = m("256*i + j", i=128, j=256)
    b = a.permute([1, 0])
    assert b.index is a.index
    assert b.sequence_form() != a.sequence_form()
    assert b.set_form() == a.set_form()


def test_split_and_merge_undo_each_other() -> None:
    a = m("256*i + j", i=128, j=256)
    cut = a.split(loop("j"), 32)
    assert str(cut) == "(i: 128, jo: 8, ji: 32) -> 256*i + ji + 32*jo"
    assert cut.merge(loop("jo")).sequence_form() == a.sequence_form()


def test_split_needs_a_factor_that_divides() -> None:
    with pytest.raises(ValueError, match="does not provably divide"):
        m("i", i=10).split(loop("i"), 4)
    with pytest.raises(ValueError, match="does not provably divide"):
        m("i", i=S).split(loop("i"), 8)
    assert len(m("i", i=S).split(loop("i"), 4).domain) == 2


@pytest.mark.parametrize(
    "results, loops, shape, inverse",
    [
        (("i", "2*j + k"), {"i": 4, "j": 3, "k": 2}, (4, 6), ("t0", "t1//2", "t1 % 2")),
        (("j", "i"), {"i": 4, "j": 3}, (3, 4), ("t1", "t0")),
        (("4*(i % 3) + i//3",), {"i": 12}, (12,), ("3*(t0 % 4) + t0//4",)),
        (("i + j",), {"i": 5, "j": 1}, (5,), ("t0", "0")),
    ],
)
def test_invert(results: tuple, loops: dict, shape: tuple, inverse: tuple) -> None:
    found = IndexMap.of(Domain.of(**loops), *map(parse, results)).invert(shape)
    assert found is not None
    assert found.results == tuple(parse(t) for t in inverse)


@pytest.mark.parametrize(
    "results, loops, shape",
    [
        (("2*i",), {"i": 4}, (8,)),
        (("i//2",), {"i": 4}, (2,)),
        (("i + j",), {"i": 4, "j": 4}, (7,)),
        (("i",), {"i": 4, "j": 2}, (4,)),
        (("i + 1",), {"i": 4}, (5,)),
    ],
)
def test_should_not_invert_what_is_not_one_to_one(
    results: tuple, loops: dict, shape: tuple
) -> None:
    assert IndexMap.of(Domain.of(**loops), *map(parse, results)).invert(shape) is None


def test_composition_simplifies() -> None:
    linear = m("256*i + j", i=128, j=256)
    flat = IndexMap.of(Domain.of(k=32768), parse("k//256"), parse("k % 256"))
    assert str(linear.after(flat)) == "(k: 32768) -> k"
    with pytest.raises(ValueError, match="1 results do not fit 2 loops"):
        linear.after(m("k", k=3))


def test_loops_merge_only_if_every_access_agrees() -> None:
    d = Domain.of(i=128, j=256)
    merged, _ = merge_contiguous(d, [parse("256*i + j"), parse("512*i + 2*j")])
    assert len(merged) == 1
    kept, _ = merge_contiguous(d, [parse("256*i + j"), parse("i + 128*j")])
    assert len(kept) == 2
    border, _ = merge_contiguous(d, [parse("256*i + j")], groups=[1])
    assert len(border) == 2


def test_stride() -> None:
    a = m("256*i + s*j + 3", i=4, j=5)
    assert a.stride(loop("i")) is parse("256")
    assert a.stride(loop("j")) is S
    assert a.stride(loop("absent")) is parse("0")
    assert m("i//2", i=4).stride(loop("i")) is None


def test_bad_domains_are_refused() -> None:
    with pytest.raises(ValueError, match="may occur once"):
        Domain([(loop("i"), 2), (loop("i"), 3)])
    with pytest.raises(ValueError, match="negative extent"):
        Domain.of(i=-1)
    assert Domain.of(i=3) is Domain.of(i=3)


@pytest.mark.parametrize(
    "one",
    [
        m("256*i + j", i=128, j=256),
        m("i + 4*j", i=3, j=9),
        m("11 - i", i=12),
        m("4*(i % 3) + i//3", i=12),
        m("s*i + j", i=4, j=S),
        m("7", i=1),
    ],
)
def test_one_to_one_walks_are_known(one: IndexMap) -> None:
    assert one.is_injective()


@pytest.mark.parametrize(
    "one",
    [
        m("i + 2*j + 3*k", i=2, j=2, k=2),
        m("i//2", i=4),
        m("j", i=2, j=4),
        m("i + j", i=S, j=S),
        m("i*i", i=4),
        m("s*i + j", i=4, j=S + 1),
    ],
)
def test_walks_that_may_repeat_should_not_pass_for_one_to_one(one: IndexMap) -> None:
    assert not one.is_injective()
