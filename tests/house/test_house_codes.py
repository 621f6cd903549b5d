"""Every code has a page, every page a place that uses it and a test."""

from house_codes import AWAITED, codes_in, codes_in_tests, codes_of_pages
from house_tree import Module, all_modules


def test_every_code_in_the_source_has_a_page() -> None:
    pages = codes_of_pages()
    missing = {code: place for code, place in codes_in(all_modules()).items() if code not in pages}
    assert not missing, f"write src/treadle/core/pages/CODE.md for {missing}"


def test_every_page_is_used_in_the_source() -> None:
    unused = codes_of_pages() - set(codes_in(all_modules())) - set(AWAITED)
    assert not unused, f"pages nobody refers to: {sorted(unused)}"


def test_every_page_that_is_used_is_tested() -> None:
    untested = codes_of_pages() - codes_in_tests() - set(AWAITED)
    assert not untested, f"codes without a test: {sorted(untested)}"


def test_every_awaited_code_is_still_awaited() -> None:
    arrived = set(AWAITED) & set(codes_in(all_modules())) | set(AWAITED) - codes_of_pages()
    assert not arrived, f"remove from AWAITED in house_codes.py: {sorted(arrived)}"


def test_only_whole_literals_are_codes() -> None:
    module = Module("core/a.py", 'x = no("FUS004")\ny = "see FUS005"\nz = "fus006"\n')
    assert codes_in([module]) == {"FUS004": "src/treadle/core/a.py:1"}
