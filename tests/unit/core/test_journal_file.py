"""The journal on disk: write then read is the identity, damage is named with its line."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle import __version__
from treadle.core import InputError, Journal, UsageError, no, yes


def small_journal(level: int = 3) -> Journal:
    journal = Journal(level=level)
    journal.emit("pass", name="fuse", changed=True, ops_before=4)
    journal.verdict("fuse", ("a", "b"), yes("FUS100", saved=8))
    journal.verdict("fuse", ("a", "c"), no("FUS004", left="cpu"))
    return journal


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    small_journal().write(path)
    return path


def error_of(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        Journal.read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), path.name)


def test_the_file_is_a_header_and_one_event_a_line(written: Path) -> None:
    assert written.read_bytes() == (
        b'{"treadle_journal": 1, "treadle": "%s", "level": 3, "events": 2,'
        b' "left_out": {"FUS004": 1}}\n'
        b'{"kind": "pass", "n": 0, "name": "fuse", "changed": true, "ops_before": 4}\n'
        b'{"kind": "verdict", "n": 1, "question": "fuse", "ops": ["a", "b"], "ok": true,'
        b' "code": "FUS100", "facts": {"saved": 8}}\n' % __version__.encode()
    )


def test_reading_gives_back_events_level_and_counts(written: Path, tmp_path: Path) -> None:
    journal, again = small_journal(), Journal.read(written)
    assert list(again.events()) == list(journal.events())
    assert again.summary() == journal.summary()
    for ok in (True, False):
        assert again.decided(ok) == journal.decided(ok)
    assert again.level == 3
    again.write(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == written.read_bytes()


def test_a_journal_that_was_read_can_be_continued(written: Path) -> None:
    again = Journal.read(written)
    again.emit("note", text="more")
    assert [event["n"] for event in again.events()] == [0, 1, 2]


def test_a_header_may_carry_more_and_so_may_an_event(written: Path) -> None:
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    for line in lines:
        line["extra"] = 1
    written.write_text("\n".join(map(json.dumps, lines)))
    assert [event["extra"] for event in Journal.read(written).events()] == [1, 1]


EVENT = '{"kind": "note", "n": 0, "text": "x"}'
HEADER = '{"treadle_journal": 1, "level": 5, "events": 1, "left_out": {}}'
KIND_LIST = "pass, candidate, verdict, step, plan, kernel, timing, artifact, note"


def header(**changes: object) -> str:
    return json.dumps({**json.loads(HEADER), **changes})


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "1: expected a journal header with 'treadle_journal', found an empty file"),
        ("[]", "1: expected a journal header with 'treadle_journal', found []"),
        ("{}", "1: expected a journal header with 'treadle_journal', found {}"),
        (header(treadle_journal="1"), "1: expected a journal version such as 1, found '1'"),
        (header(treadle_journal=True), "1: expected a journal version such as 1, found True"),
        (
            header(treadle_journal=2),
            "1: expected journal version 1 or older, found version 2, written by a newer Treadle",
        ),
        (header(level=9), "1: expected a level from 0 to 5 in the header, found 9"),
        (header(events=-1), "1: expected a count of events in the header, found -1"),
        (
            header(left_out={"A": "1"}),
            "1: expected counts by code in 'left_out' of the header, found {'A': '1'}",
        ),
        (
            HEADER + "\n" + EVENT[:20],
            "2:21: expected one JSON object, found an unfinished or damaged line",
        ),
        (HEADER + "\n\n" + EVENT, "2:1: expected one JSON object, found an empty line"),
        (HEADER + "\n7", "2: expected an event as a JSON object, found 7"),
        (
            HEADER + '\n{"kind": "note", "n": 0, "text": NaN}',
            "2: expected one JSON object, found NaN, which JSON has no form for",
        ),
        (
            HEADER + '\n{"n": 0}',
            f"2: expected a kind among {KIND_LIST}, found an event without a kind",
        ),
        (HEADER + '\n{"kind": []}', f"2: expected a kind among {KIND_LIST}, found []"),
        (HEADER + '\n{"kind": "x"}', f"2: expected a kind among {KIND_LIST}, found 'x'"),
        (HEADER + '\n{"kind": "note"}', "2: expected event number 0, found n = None"),
        (HEADER + '\n{"kind": "note", "n": 1}', "2: expected event number 0, found n = 1"),
        (HEADER + '\n{"kind": "note", "n": false}', "2: expected event number 0, found n = False"),
        (
            HEADER + '\n{"kind": "note", "n": 0}',
            "2: expected text in field 'text' of a note event, found no such field",
        ),
        (
            HEADER + '\n{"kind": "note", "n": 0, "text": 3}',
            "2: expected text in field 'text' of a note event, found 3",
        ),
        (HEADER, "1: expected 1 events as the header says, found 0 events in the file"),
        (
            header(events=0) + "\n" + EVENT,
            "2: expected 0 events as the header says, found 1 events in the file",
        ),
    ],
)  # fmt: skip
def test_should_not_read_a_damaged_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    assert error_of(path) == f"run.jsonl:{message}"


def test_should_not_read_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(HEADER.encode() + b"\n\xff\xfe")
    assert error_of(path) == "run.jsonl:2: expected text in UTF-8, found other bytes"


def test_should_not_fall_over_deep_nesting(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(HEADER + "\n" + "[" * 200_000)
    assert error_of(path).startswith("run.jsonl:2: expected one JSON object, found ")


def test_should_not_read_what_is_not_there(tmp_path: Path) -> None:
    missing = error_of(tmp_path / "no.jsonl")
    assert missing == "no.jsonl: expected a readable journal, found no such file or directory"
    folder = error_of(tmp_path)
    assert folder == f"{tmp_path.name}: expected a readable journal, found is a directory"


def test_should_not_write_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write the journal .*: No such file or directory"):
        Journal().write(tmp_path / "no" / "run.jsonl")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(cut=st.integers(0, 400), flip=st.integers(0, 255))
def test_any_cut_or_changed_byte_is_read_or_refused_but_never_crashes(
    written: Path, cut: int, flip: int
) -> None:
    content = bytearray(Path(written).read_bytes())
    content[cut % len(content)] = flip
    damaged = written.with_name("damaged.jsonl")
    for data in (content, content[: cut % len(content)]):
        damaged.write_bytes(data)
        with contextlib.suppress(InputError):
            Journal.read(damaged)


def test_a_quiet_journal_keeps_agreements_and_refusals_apart(tmp_path: Path) -> None:
    journal = Journal(level=0)
    journal.verdict("schedule-loops", ("a",), yes("KER007"))
    journal.verdict("schedule-loops", ("b",), no("KER007"))
    journal.write(tmp_path / "quiet.jsonl")
    again = Journal.read(tmp_path / "quiet.jsonl")
    assert again.decided(ok=True) == again.decided(ok=False) == {"KER007": 1}
