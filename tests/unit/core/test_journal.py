"""The journal in memory: what is kept, what is refused, what is counted."""

import math

import pytest

from treadle.core import InternalError, Journal, no, yes
from treadle.core.journal_schema import KINDS, LIST, NUMBER, TABLE, TEXT, WHOLE

SAMPLE_OF = {TEXT: "x", WHOLE: 1, NUMBER: 0.5, LIST: ["x"], TABLE: {"x": 1}, (bool,): True}


def sample(kind: str) -> dict[str, object]:
    return {name: SAMPLE_OF[types] for name, types in KINDS[kind].required.items()}


def test_the_kinds_are_the_documented_ones() -> None:
    assert " ".join(KINDS) == "pass candidate verdict step plan kernel timing artifact note"


def test_events_are_numbered_in_order() -> None:
    journal = Journal()
    journal.emit("note", text="a")
    journal.emit("pass", name="fuse", changed=True, ops_before=4)
    assert list(journal.events()) == [
        {"kind": "note", "n": 0, "text": "a"},
        {"kind": "pass", "n": 1, "name": "fuse", "changed": True, "ops_before": 4},
    ]
    assert [event["n"] for event in journal.events("pass")] == [1]
    assert len(journal) == 2


def test_an_empty_journal_is_still_true() -> None:
    assert Journal()


@pytest.mark.parametrize("kind", KINDS)
def test_a_complete_event_of_each_kind_is_kept(kind: str) -> None:
    journal = Journal()
    journal.emit(kind, **sample(kind))
    assert [event["kind"] for event in journal.events()] == [kind]


@pytest.mark.parametrize("kind, name", [(k, n) for k in KINDS for n in KINDS[k].required])
def test_should_not_accept_an_event_without_a_required_field(kind: str, name: str) -> None:
    fields = sample(kind)
    del fields[name]
    journal = Journal()
    with pytest.raises(InternalError, match=rf"in field '{name}' of a {kind} event, found no such"):
        journal.emit(kind, **fields)
    assert len(journal) == 0


@pytest.mark.parametrize("kind, name", [(k, n) for k in KINDS for n in KINDS[k].required])
def test_should_not_accept_a_required_field_of_another_type(kind: str, name: str) -> None:
    with pytest.raises(InternalError, match=f"in field '{name}' of a {kind} event, found None"):
        Journal().emit(kind, **{**sample(kind), name: None})


def test_should_not_take_true_for_a_number() -> None:
    with pytest.raises(InternalError, match="a whole number in field 'total_bytes'"):
        Journal().emit("plan", total_bytes=True, plan_lower_bound=1)


def test_should_not_take_an_infinite_time() -> None:
    with pytest.raises(InternalError, match="a number in field 'seconds'"):
        Journal().emit("timing", name="x", seconds=math.inf)


def test_should_not_accept_an_unknown_kind() -> None:
    with pytest.raises(InternalError, match=r"expected a kind among pass, .*, found 'fusion'"):
        Journal().emit("fusion")


@pytest.mark.parametrize("field", ["n", "kind"])
def test_should_not_let_a_field_take_the_place_of_the_frame(field: str) -> None:
    with pytest.raises(InternalError):
        Journal().emit("note", text="x", **{field: 9})


def test_later_changes_to_emitted_values_do_not_reach_the_journal() -> None:
    journal, ops = Journal(), ["a"]
    journal.emit("kernel", name="k", ops=ops)
    ops.append("b")
    assert next(journal.events())["ops"] == ["a"]


def test_off_keeps_nothing_and_checks_nothing() -> None:
    journal = Journal(enabled=False)
    journal.emit("no such kind")
    journal.verdict("fuse", ("a", "b"), no("FUS004"))
    assert len(journal) == 0
    assert journal.summary() == {"events": {}, "verdicts": {}}


@pytest.mark.parametrize(
    "level, kept", [(0, []), (2, []), (3, ["FUS100"]), (4, ["FUS100", "FUS004"])]
)
def test_verdicts_are_kept_from_their_level_on_and_always_counted(
    level: int, kept: list[str]
) -> None:
    journal = Journal(level=level)
    journal.verdict("fuse", ("a", "b"), yes("FUS100", saved=8))
    journal.verdict("fuse", ("a", "c"), no("FUS004", left="cpu"))
    assert [event["code"] for event in journal.events("verdict")] == kept
    assert journal.summary()["verdicts"] == {"FUS004": 1, "FUS100": 1}


@pytest.mark.parametrize("level", [0, 3, 4])
def test_agreements_and_refusals_of_one_code_are_counted_apart(level: int) -> None:
    journal = Journal(level=level)
    journal.verdict("schedule-loops", ("a",), yes("KER007", shape="rows"))
    journal.verdict("schedule-loops", ("b",), yes("KER007", shape="rows"))
    journal.verdict("schedule-loops", ("c",), no("KER007", reason="a scan"))
    assert (journal.decided(ok=True), journal.decided(ok=False)) == ({"KER007": 2}, {"KER007": 1})


def test_other_kinds_are_kept_at_every_level() -> None:
    journal = Journal(level=0)
    journal.emit("note", text="x")
    assert len(journal) == 1


def test_should_not_hide_a_malformed_verdict_in_a_quiet_run() -> None:
    with pytest.raises(InternalError, match="true or false in field 'ok'"):
        Journal(level=0).emit("verdict", question="fuse", ops=[], ok=0, code="FUS004", facts={})


def test_a_verdict_event_holds_question_operations_and_facts() -> None:
    journal = Journal()
    journal.verdict("fuse", ("a", "b"), no("FUS004", left="cpu", right="cuda:0"))
    assert next(journal.events()) == {
        "kind": "verdict",
        "n": 0,
        "question": "fuse",
        "ops": ["a", "b"],
        "ok": False,
        "code": "FUS004",
        "facts": {"left": "cpu", "right": "cuda:0"},
    }


def test_the_summary_counts_by_kind_and_by_code() -> None:
    journal = Journal()
    for code in ("FUS004", "FUS002", "FUS004"):
        journal.verdict("fuse", ("a", "b"), no(code))
    journal.emit("note", text="x")
    assert journal.summary() == {
        "events": {"note": 1, "verdict": 3},
        "verdicts": {"FUS002": 1, "FUS004": 2},
    }
