"""Codes and their pages."""

import pytest

from treadle.core import Code, InternalError, UsageError, explain, load_codes
from treadle.core.codes import parse_page

PAGE = "# TST001: a title\n\n## What it means\n\nx\n\n## Example\n\n## What to do\n"


def test_every_shipped_page_parses_and_they_come_sorted() -> None:
    codes = load_codes()
    assert {"OPT001", "OPT002", "PIPE001", "PIPE002", "PIPE003", "COST001", "ORD001"} <= set(codes)
    assert list(codes) == sorted(codes)
    assert all(name == code.id for name, code in codes.items())


def test_a_page_becomes_a_code() -> None:
    code = parse_page("TST001", PAGE)
    assert code == Code("TST001", "a title", PAGE)
    assert code.family == "TST"


def test_explaining_returns_the_page_in_any_case() -> None:
    assert explain("OPT001") == load_codes()["OPT001"].page
    assert explain(" opt001 ") == explain("OPT001")


@pytest.mark.parametrize("code", ["OPT01", "OTP001", "opt"])
def test_should_not_explain_an_unknown_code_but_list_the_nearest(code: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(code)
    assert caught.value.message == f"no page for code {code!r}"
    assert caught.value.notes[0].startswith("did you mean: OPT00")


@pytest.mark.parametrize("code", ["", "../../errors", "pages/OPT001", "qqqqqqqq"])
def test_should_not_reach_beyond_the_pages(code: str) -> None:
    with pytest.raises(UsageError, match="no page for code"):
        explain(code)


def test_nothing_near_lists_the_families() -> None:
    with pytest.raises(UsageError) as caught:
        explain("qqqqqqqq")
    families = sorted({code.family for code in load_codes().values()})
    assert caught.value.notes == (f"codes begin with: {', '.join(families)}",)


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("tst1", PAGE, "page tst1.md: the file name is not a code such as OPT001"),
        ("TST002", PAGE, "page TST002.md: the first line is not '# TST002: <title>'"),
        ("TST001", PAGE.replace("a title", ""), "page TST001.md: the first line is not"),
        ("TST001", "# TST001: a title\n", "page TST001.md: sections are missing"),
        (
            "TST001",
            PAGE.replace("## Example\n", ""),
            "page TST001.md: sections are What it means, What to do",
        ),
    ],
)
def test_should_not_accept_a_page_without_the_house_shape(
    name: str, text: str, message: str
) -> None:
    with pytest.raises(InternalError) as caught:
        parse_page(name, text)
    assert caught.value.message.startswith(message)
