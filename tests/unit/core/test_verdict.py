"""Verdicts: truthiness, text, immutability, plain form, ordered rules."""

import copy
import dataclasses
import functools
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core import (
    YES,
    InputError,
    InternalError,
    Verdict,
    check_rules,
    explain_rules,
    no,
    yes,
)

FACTS = st.dictionaries(
    st.text(min_size=1).filter(lambda name: name != "code"),
    st.integers() | st.text() | st.booleans() | st.lists(st.integers()),
)


def test_a_verdict_is_as_true_as_its_answer() -> None:
    assert YES
    assert yes("FUS100", saved=4)
    assert not no("FUS004")


@pytest.mark.parametrize(
    "verdict, text",
    [
        (YES, "yes"),
        (yes(saved=12), "yes saved=12"),
        (yes("FUS100", saved=12), "yes FUS100 saved=12"),
        (no("FUS004", left="cpu", right="cuda:0"), "no FUS004 left=cpu right=cuda:0"),
        (no("FUS004", why="two words", empty="", line="a\nb"),
         "no FUS004 why='two words' empty='' line='a\\nb'"),
    ],
)  # fmt: skip
def test_the_text_is_one_readable_line(verdict: Verdict, text: str) -> None:
    assert str(verdict) == text


def test_the_representation_builds_the_same_verdict() -> None:
    verdict = no("FUS004", left="cpu", sizes=[1, 2])
    assert eval(repr(verdict)) == verdict


def test_a_refusal_needs_a_code() -> None:
    with pytest.raises(InternalError, match="a refusal needs a code"):
        Verdict(False)


def test_should_not_change_through_any_door() -> None:
    facts = {"left": 1}
    verdict = Verdict(False, "FUS004", facts)
    facts["left"] = 2
    assert verdict.facts["left"] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.ok = True  # type: ignore[misc]
    with pytest.raises(TypeError):
        verdict.facts["left"] = 2  # type: ignore[index]
    assert not hasattr(verdict, "__dict__")


def test_equal_verdicts_hash_alike_even_with_unhashable_facts() -> None:
    assert no("FUS004", a=[1]) == no("FUS004", a=[1])
    assert no("FUS004", a=[1]) != no("FUS004", a=[2])
    assert len({no("FUS004", a=[1]), no("FUS004", a=[1])}) == 1


@given(FACTS)
def test_copies_and_pickles_are_equal(facts: dict[str, object]) -> None:
    verdict = Verdict(False, "FUS004", facts)
    assert pickle.loads(pickle.dumps(verdict)) == verdict
    assert copy.deepcopy(verdict) == verdict


@given(FACTS, st.booleans())
def test_the_plain_form_survives_json(facts: dict[str, object], ok: bool) -> None:
    verdict = Verdict(ok, "FUS004", facts)
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_facts_that_json_does_not_know_become_text() -> None:
    assert no("FUS004", size=float("inf"), ops=("a", "b")).to_dict() == {
        "ok": False,
        "code": "FUS004",
        "facts": {"size": "inf", "ops": ["a", "b"]},
    }


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"ok": 1, "code": "FUS004", "facts": {}},
        {"ok": True, "code": 4, "facts": {}},
        {"ok": True, "code": "FUS004", "facts": []},
        {"ok": False, "code": "OK", "facts": {}},
    ],
)
def test_should_not_read_a_damaged_plain_form(data: object) -> None:
    with pytest.raises(InputError, match=r"run\.jsonl: expected a verdict with ok, code and facts"):
        Verdict.from_dict(data, file="run.jsonl")


def agrees(_: int) -> Verdict:
    return YES


def is_small(n: int) -> Verdict:
    return YES if n < 10 else no("TST001", n=n)


def is_even(n: int) -> Verdict:
    return YES if n % 2 == 0 else no("TST002", n=n)


def test_rules_agree_when_each_does() -> None:
    assert check_rules((agrees, is_small, is_even), 4) is YES
    assert check_rules((), 4) is YES


def test_the_first_refusal_wins_and_later_rules_are_not_asked() -> None:
    def never(_: int) -> Verdict:
        raise AssertionError("asked although an earlier rule refused")

    assert check_rules((agrees, is_small, never), 11) == no("TST001", n=11)
    assert check_rules((is_even, is_small), 11) == no("TST002", n=11)


def test_explaining_asks_every_rule_and_names_it() -> None:
    at_most = functools.partial(is_small)
    assert explain_rules((agrees, is_small, is_even, at_most), 11) == [
        ("agrees", YES),
        ("is_small", no("TST001", n=11)),
        ("is_even", no("TST002", n=11)),
        ("is_small", no("TST001", n=11)),
    ]


def test_a_rule_without_a_name_is_known_by_its_class() -> None:
    class Limit:
        def __call__(self, _: int) -> Verdict:
            return YES

    assert explain_rules((Limit(),), 1) == [("Limit", YES)]
