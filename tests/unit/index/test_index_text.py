"""Text of index expressions: both dialects print and parse; errors have a column."""

import pytest

from treadle.index import (
    IndexSyntaxError,
    evaluate,
    indirect,
    loop,
    parse,
    show,
    show_sympy,
    size,
)
from treadle.index.text import show_sympy_whole


@pytest.mark.parametrize(
    "text",
    [
        "256*i + j",
        "-i + 3",
        "i*j + 2*s0*s1",
        "((i + 1) // 4)",
        "(j // 2) + 3*(i % 4)",
        "min(56, max(j, k), i + 1)",
        "128*%5 + j",
        "(i % %5)",
    ],
)
def test_own_text_comes_back_as_written(text: str) -> None:
    assert show(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "1024*indirect0 + 256*indirect1 + 4096*p0 + p1",
        "indirect3 + 109*((indirect3//3)) - 113",
        "224*Min(Max(0, (p1//2)) + 1, Min(56, (((p1 + 1)//2)) + 1) - 1)",
        "ModularIndexing(p0, 4, 3) + 7*ModularIndexing(p1, 1, 8)",
        "c0 + 2*c1",
        "s17*c0",
        "Min(56, (((p2 + 1)//2)) + 1)",
        "s0**2 + s0*s1",
    ],
)
def test_sympy_text_is_understood(text: str) -> None:
    e = parse(text)
    assert parse(show_sympy(e)) is e
    assert parse(show(e)) is e


def test_sympy_text_of_dumps_is_printed_letter_for_letter() -> None:
    for text in (
        "1024*indirect0 + 256*indirect1 + 4096*p0 + p1",
        "Max(0, (p1//2)) + 1",
        "(p1//2)",
        "200704*p0 + p3 + 64*Min(Max(0, (p2//2)) + 1, Min(56, (((p2 + 1)//2)) + 1) - 1)"
        " + 3584*Min(Min(56, (((p1 + 1)//2)) + 1) - 1, Max(0, (p1//2)))",
    ):
        assert show_sympy_whole(parse(text)) == text


@pytest.mark.parametrize(
    "text, column, expected",
    [
        ("", 1, "a number, a name or '('"),
        ("i +", 4, "a number, a name or '('"),
        ("(i", 3, "')'"),
        ("i j", 3, "an operator or the end"),
        ("foo(i)", 1, "one of the functions"),
        ("min()", 5, "a number, a name or '('"),
        ("FloorDiv(i)", 1, "2 argument(s) for FloorDiv"),
        ("i // 0", 3, "a divisor that is not zero"),
        ("Mod(i, 0)", 1, "a divisor that is not zero"),
        ("i ** 99", 6, "a power between 1 and 16"),
        ("i $ j", 3, "a number, a name or an operator"),
        ("1" * 31, 1, "a number of at most 30 digits"),
        ("(" * 300, 61, "at most 60 nested parentheses"),
    ],
)
def test_errors_have_a_column_and_say_what_was_expected(
    text: str, column: int, expected: str
) -> None:
    with pytest.raises(IndexSyntaxError) as e:
        parse(text)
    assert f"column {column}:" in str(e.value)
    assert expected in str(e.value)


def test_names_get_their_meaning_from_the_scope_first() -> None:
    s = size("n", 1, 9)
    assert parse("2*n", {"n": s}) is 2 * s
    assert parse("tmp3 + n") is indirect("tmp3") + loop("n")
    with pytest.raises(IndexSyntaxError, match="a declared name"):
        parse("n", {}, lambda name: None)


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_a_choice_between_two_is_a_number(sign: str) -> None:
    e = parse(f"2*(Where(p0 - 3 {sign} p1, p0 + 7, 5*p1)) + 1")
    holds = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}[sign]
    for a in range(-3, 9):
        for b in range(-3, 9):
            expected = 2 * (a + 7 if holds(a - 3, b) else 5 * b) + 1
            assert evaluate(e, {loop("p0"): a, loop("p1"): b}) == expected


@pytest.mark.parametrize("text", ["Where(p0, 1, 2)", "Where(p0 < 1, 2)", "Where(p0 < 1, 2, 3",
                                  "p0 < 1", "Where(p0 == 1, 2, 3)", "Where()"])  # fmt: skip
def test_a_choice_without_a_comparison_is_refused(text: str) -> None:
    with pytest.raises(IndexSyntaxError):
        parse(text)
