"""Every pass on its golden cases: tests/golden/<pass>/<sentence>.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.spec import verify
from treadle.ir.text import parse_program, show_program
from treadle.schedule.passes import PASSES
from treadle.schedule.pipeline import check
from treadle.testing.costs import MACHINES
from treadle.testing.golden import GoldenCase, golden_cases, read_case

HERE = Path(__file__).parent
CASES = [(name, path) for name in PASSES for path in golden_cases(HERE / name.replace("-", "_"))]


@pytest.mark.parametrize("name, path", CASES, ids=[f"{n}/{p.stem}" for n, p in CASES])
def test_a_pass_does_what_its_golden_case_shows(name: str, path: Path, update_golden: bool) -> None:
    case = read_case(path)
    program = verify(parse_program(case.blocks["before"], case.path.name))
    assert show_program(program) == case.blocks["before"], "`before` is not in standard form"
    journal = Journal()
    result = PASSES[name].run(program, Ctx(Options(), MACHINES, journal))
    if result is not program:
        card = PASSES[name]
        assert check(program, result, card.after, level=3, rounds=card.rounds) == []
    after = "" if result is program else show_program(result)
    case.check("after", after, update_golden)
    if case.refuses:
        read_case(path).check_reasons(journal.events(), update_golden)


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_has_cases_and_half_of_them_say_what_should_not_happen(name: str) -> None:
    stems = [path.stem for n, path in CASES if n == name]
    refusals = [s for s in stems if s.startswith("should_not")]
    assert len(stems) >= 4
    assert 2 * len(refusals) >= len(stems) - 1


def test_a_golden_case_that_differs_shows_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "case.md"
    path.write_text("# x\n\n```before\na\n```\n\n```after\nb\n```\n")
    with pytest.raises(AssertionError, match=r"(?s)rerun with --update-golden.*-b.*\+c"):
        read_case(path).check("after", "c\n")
    read_case(path).check("after", "c\n", update=True)
    read_case(path).check("after", "c\n")
    with pytest.raises(AssertionError, match="has no block 'other'"):
        read_case(path).check("other", "")
    path.write_text("nothing")
    with pytest.raises(ValueError, match="needs a block 'before'"):
        read_case(path)


REFUSED = {"kind": "verdict", "ok": False, "code": "FUS008", "facts": {"reason": "too far"}}
OTHER = {"kind": "verdict", "ok": False, "code": "FUS010", "facts": {}}
AGREED = {"kind": "verdict", "ok": True, "code": "FUS000", "facts": {}}


def refusing(path: Path, reasons: str | None) -> GoldenCase:
    block = "" if reasons is None else f"\n```reasons\n{reasons}```\n"
    path.write_text(f"# x\n\n```before\na\n```\n\n```after\n```\n{block}")
    return read_case(path)


def test_a_refusal_must_be_for_the_reason_that_the_case_states(tmp_path: Path) -> None:
    path = tmp_path / "should_not_fuse.md"
    case = refusing(path, "FUS008 too far\n")
    case.check_reasons([AGREED, REFUSED, REFUSED])
    for events in ([OTHER], [REFUSED, OTHER], [AGREED], [REFUSED | {"facts": {}}]):
        with pytest.raises(AssertionError, match=r"-FUS008 too far|\+FUS010"):
            case.check_reasons(events)
    case.check_reasons([OTHER], update=True)
    read_case(path).check_reasons([OTHER])


def test_a_case_must_say_why_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "should_not_fuse.md"
    for reasons in (None, ""):
        with pytest.raises(AssertionError, match="nothing refuses; say `none:`"):
            refusing(path, reasons).check_reasons([AGREED])
    with pytest.raises(AssertionError, match="has no block 'reasons'"):
        refusing(path, None).check_reasons([REFUSED])
    case = refusing(path, "none: there is only one loop\n")
    case.check_reasons([AGREED])
    with pytest.raises(AssertionError, match=r"\+FUS008 too far"):
        case.check_reasons([REFUSED])
