"""Accesses that never meet: by range, by residue, in bytes."""

from itertools import product
from random import Random

import pytest

from treadle.index import Domain, parse, sum_of
from treadle.index.apart import ByteSpan, never_meet

D = Domain.of(i=8, j=4)


def span(text: str, width: int = 4) -> ByteSpan:
    return ByteSpan(parse(text), width, D.facts)


@pytest.mark.parametrize(
    "a, b",
    [
        ("i", "i + 8"),
        ("2*i", "2*i + 1"),
        ("8*i + j", "8*i + j + 4"),
        ("12*i + j", "12*i + 8"),
        ("2*i", "4*j + 1"),
        ("9*i + 2*j", "9*i + 2*j + 1"),
        ("33*i + 4*j + 3", "33*i + 4*j + 1"),
        ("2", "4*i - 3"),
    ],
)
def test_apart(a: str, b: str) -> None:
    assert never_meet(span(a), span(b))
    assert never_meet(span(b), span(a))


@pytest.mark.parametrize(
    "a, b",
    [
        ("i", "7 - i"),
        ("2*i", "3*i"),
        ("8*i + j", "8*i + j + 3"),
        ("7*i + 2*j", "7*i + 2*j + 1"),
        ("5", "4*i - 3"),
    ],
)
def test_should_not_be_called_apart(a: str, b: str) -> None:
    assert not never_meet(span(a), span(b))


def test_what_is_called_apart_is_apart_at_every_point() -> None:
    random, seen = Random(0), 0
    facts = Domain.of(i=3, j=4, k=2).facts
    loops = list(facts.extents)
    for _ in range(3000):
        spans, touched = [], []
        steps = [random.choice((0, 1, 2, 3, 4, 8, 9, -2)) for _ in loops]
        for _ in range(2):
            start, width = random.randint(0, 9), random.choice((2, 2, 1, 4))
            index = sum_of([start, *[v * c for v, c in zip(loops, steps, strict=True)]])
            spans.append(ByteSpan(index, width, facts))
            bytes_of = set()
            for at in product(range(3), range(4), range(2)):
                first = (start + sum(c * n for c, n in zip(steps, at, strict=True))) * width
                bytes_of.update(range(first, first + width))
            touched.append(bytes_of)
        if never_meet(*spans):
            seen += 1
            assert touched[0].isdisjoint(touched[1]), spans
    assert seen > 100


def test_widths_count() -> None:
    assert not never_meet(span("2*i", 4), span("2*i + 1", 8))
    assert never_meet(span("i", 4), span("i + 4", 8))
    assert not never_meet(span("i", 4), span("i + 3", 8))
