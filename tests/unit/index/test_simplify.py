"""Simplification with loop extents."""

import pytest

from treadle.index import Domain, loop, parse, size

S = size("s", 1)
SCOPE = {"s": S}


@pytest.mark.parametrize(
    "loops, text, simple",
    [
        ({"i": 128, "j": 256}, "(256*i + j)//256", "i"),
        ({"i": 128, "j": 256}, "(256*i + j) % 256", "j"),
        ({"i": 128, "j": 16}, "(16*i + j) % 32", "16*(i % 2) + j"),
        ({"i": 128, "j": 16}, "(16*i + j)//32", "i//2"),
        ({"i": 128, "j": 16}, "(16*i + j + 16)//32", "(i + 1)//2"),
        ({"i": 8}, "min(i, 100)", "i"),
        ({"i": 8}, "max(i - 8, 0)", "0"),
        ({"i": 8}, "(i + 24)//8", "3"),
        ({"i": 8}, "(i - 8) % 8", "i"),
        ({"i": 1, "j": 4}, "7*i + j", "j"),
        ({"i": 4, "j": 3, "k": 5}, "((15*i + 5*j + k)//5) % 3", "j"),
        ({"i": 12}, "(i//12) + (i % 12)", "i"),
    ],
)
def test_simplifies(loops: dict, text: str, simple: str) -> None:
    assert Domain.of(**loops).facts.simplify(parse(text)) is parse(simple)


@pytest.mark.parametrize(
    "text, simple",
    [
        ("(s*i + j)//s", "i"),
        ("(s*i + j) % s", "j"),
        ("(s*i + j)//(4*s)", "i//4"),
        ("(s*i + j) % (4*s)", "s*(i % 4) + j"),
        ("(-j - 1)//s", "-1"),
        ("(-j - 1) % s", "s - 1 - j"),
        ("(-j - 2) % s", "(-j - 2) % s"),
    ],
)
def test_simplifies_over_run_time_sizes(text: str, simple: str) -> None:
    d = Domain([(loop("i"), 32), (loop("j"), S)])
    assert d.facts.simplify(parse(text, SCOPE)) is parse(simple, SCOPE)


@pytest.mark.parametrize("text", ["(256*i + j + 1)//256", "(i + j) % 128", "min(i, j)", "i//2"])
def test_should_not_simplify_what_it_cannot_prove(text: str) -> None:
    e = parse(text)
    assert Domain.of(i=128, j=256).facts.simplify(e) is e
