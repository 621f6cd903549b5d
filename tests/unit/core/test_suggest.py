"""Suggestions: near names first, nothing when nothing is near."""

from treadle.core.suggest import nearest, suggestion_notes

KNOWN = ("debug", "dump", "dump_pass", "check")


def test_the_best_match_comes_first() -> None:
    assert nearest("dump_pas", KNOWN) == ("dump_pass", "dump")


def test_case_does_not_matter_and_the_known_spelling_is_returned() -> None:
    assert nearest("fus001", ["FUS001"]) == ("FUS001",)


def test_the_limit_holds() -> None:
    assert len(nearest("x1", ["x1a", "x1b", "x1c"], limit=2)) == 2


def test_should_not_suggest_what_is_far_away() -> None:
    assert nearest("zzzzzz", KNOWN) == ()


def test_notes_list_the_suggestion_before_everything_known() -> None:
    assert suggestion_notes("chek", KNOWN, "options") == (
        "did you mean: check",
        "known options: check, debug, dump, dump_pass",
    )


def test_notes_without_a_near_name_only_list_what_is_known() -> None:
    assert suggestion_notes("zzzzzz", ["a"], "codes") == ("known codes: a",)
    assert suggestion_notes("zzzzzz", [], "codes") == ("known codes: none",)
