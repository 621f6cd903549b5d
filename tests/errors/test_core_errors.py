"""The exact text of every error that the core raises."""

from collections.abc import Callable

import pytest

from treadle.core import (
    InputError,
    InternalError,
    Journal,
    Options,
    SpecError,
    TreadleError,
    UsageError,
    Verdict,
    Violation,
    explain,
)
from treadle.core.journal_schema import find_problem


def raising(error: TreadleError) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "an_option_name_nobody_knows": (
        lambda: Options.make(chek=1),
        """\
OPT001: unknown option 'chek'
  did you mean: check
  known options: accounting, autotune, bucket, cache_dir, cache_limit, cc, channels_last, check, \
code, comm, cost_file, debug, dump, dump_pass, explain, hardware, host, in_flight, memory_limit, \
numerics, policy, prefetch, products, record, regather, report, report_times, reuse, seed, split, \
stop_after, strict, target, tuned, world
  read more: treadle explain OPT001""",
    ),
    "a_variable_that_is_not_a_number": (
        lambda: Options.from_env({"TREADLE_CHECK": "full"}),
        """\
OPT002: TREADLE_CHECK cannot be 'full'
  allowed: a whole number from 0 to 3
  it sets: 0 nothing, 1 stage spec after each changed pass, 2 also the dependence \
certificate, 3 also the meaning, by the interpreter
  read more: treadle explain OPT002""",
    ),
    "an_option_out_of_range": (
        lambda: Options(stop_after=-1),
        """\
OPT002: option stop_after cannot be -1
  allowed: a whole number from 0 up
  it sets: run only so many passes; halving it finds the pass that breaks a program
  read more: treadle explain OPT002""",
    ),
    "a_pattern_that_does_not_compile": (
        lambda: Options.from_env({"TREADLE_DUMP_PASS": "fuse("}),
        """\
OPT002: TREADLE_DUMP_PASS cannot be 'fuse('
  allowed: a regular expression
  it sets: dump only after passes whose name matches
  read more: treadle explain OPT002""",
    ),
    "input_with_line_and_column": (
        raising(InputError(file="a.hlo", line=3, column=7, expected="a shape", found="'}'")),
        "a.hlo:3:7: expected a shape, found '}'",
    ),
    "input_with_only_a_line": (
        raising(InputError(file="a.hlo", line=3, expected="a shape", found="'}'")),
        "a.hlo:3: expected a shape, found '}'",
    ),
    "input_without_a_place": (
        raising(InputError(file="a.hlo", column=7, expected="a file", found="a folder")),
        "a.hlo: expected a file, found a folder",
    ),
    "input_with_a_code": (
        raising(
            InputError(
                file="costs.json",
                line=4,
                expected="a positive number of bytes per second",
                found="-1",
                code="COST001",
            )
        ),
        "costs.json:4: expected a positive number of bytes per second, found -1 [COST001]",
    ),
    "usage_without_a_code": (
        raising(UsageError("two files are needed", notes=["usage: treadle diff A B"])),
        "two files are needed\n  usage: treadle diff A B",
    ),
    "a_spec_broken_after_a_pass": (
        raising(
            SpecError(
                "pass 'drop-dead-ops' left a program that is not legal in stage 'loops'",
                [Violation("IR002", "buffer 'b1' has no writer", "op7"), Violation("IR003", "x")],
                code="PIPE001",
                notes=["replay with: treadle replay repro.pkg"],
            )
        ),
        """\
PIPE001: pass 'drop-dead-ops' left a program that is not legal in stage 'loops'
  IR002 at op7: buffer 'b1' has no writer
  IR003: x
  replay with: treadle replay repro.pkg
  read more: treadle explain PIPE001""",
    ),
    "a_spec_broken_outside_of_a_pipeline": (
        raising(SpecError("not a legal program", [Violation("IR002", "x", "op7")])),
        """\
IR002: not a legal program
  IR002 at op7: x
  read more: treadle explain IR002""",
    ),
    "a_promise_broken_inside": (
        raising(InternalError("pass 'fuse' raised", code="PIPE002", notes=["KeyError: 'b1'"])),
        """\
PIPE002: pass 'fuse' raised
  KeyError: 'b1'
  read more: treadle explain PIPE002
  this is a bug in Treadle, not in your program""",
    ),
    "a_refusal_without_a_code": (
        lambda: Verdict(False),
        """\
a refusal needs a code: no('FUS004', left=..., right=...)
  this is a bug in Treadle, not in your program""",
    ),
    "a_verdict_that_cannot_be_read": (
        lambda: Verdict.from_dict({"ok": 1}),
        "verdict: expected a verdict with ok, code and facts, found {'ok': 1}",
    ),
    "an_event_without_a_required_field": (
        lambda: Journal().emit("pass", name="fuse"),
        """\
journal event 0 (pass): expected true or false in field 'changed' of a pass event, found no such \
field
  this is a bug in Treadle, not in your program""",
    ),
    "a_journal_that_is_not_there": (
        lambda: Journal.read("no such folder/run.jsonl"),
        "no such folder/run.jsonl: expected a readable journal, found no such file or directory",
    ),
    "a_journal_that_cannot_be_written": (
        lambda: Journal().write("no such folder/run.jsonl"),
        "cannot write the journal no such folder/run.jsonl: No such file or directory",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_exactly(name: str) -> None:
    act, text = CASES[name]
    with pytest.raises(TreadleError) as caught:
        act()
    assert str(caught.value) == text


def test_a_code_without_a_page_lists_the_nearest_ones() -> None:
    with pytest.raises(UsageError) as caught:
        explain("OPT0O1")
    first, second = str(caught.value).splitlines()
    assert first == "no page for code 'OPT0O1'"
    assert second.startswith("  did you mean: OPT001, ")  # the rest grows with the pages


@pytest.mark.parametrize(
    "code, case",
    [
        ("OPT001", "an_option_name_nobody_knows"),
        ("OPT002", "a_variable_that_is_not_a_number"),
        ("COST001", "input_with_a_code"),
    ],
)
def test_the_page_shows_the_text_that_is_really_printed(code: str, case: str) -> None:
    _, text = CASES[case]
    assert f"```\n{text}\n```" in explain(code)


def test_a_journal_names_operations_by_text() -> None:
    event = {"kind": "verdict", "n": 0, "question": "fuse", "ops": ["a", {}], "ok": True}
    problem = find_problem({**event, "code": "", "facts": {}}, 0)
    assert problem is not None
    assert problem.expected == "names of operations in field 'ops' of a verdict event"
    assert problem.found == "{}"
