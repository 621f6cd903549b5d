"""Accesses that never meet: by range, by residue, in bytes."""

import pytest

from treadle.index import Domain, parse
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
    ],
)
def test_apart(a: str, b: str) -> None:
    assert never_meet(span(a), span(b))
    assert never_meet(span(b), span(a))


@pytest.mark.parametrize("a, b", [("i", "7 - i"), ("2*i", "3*i"), ("8*i + j", "8*i + j + 3")])
def test_should_not_be_called_apart(a: str, b: str) -> None:
    assert not never_meet(span(a), span(b))


def test_widths_count() -> None:
    assert not never_meet(span("2*i", 4), span("2*i + 1", 8))
    assert never_meet(span("i", 4), span("i + 4", 8))
    assert not never_meet(span("i", 4), span("i + 3", 8))
