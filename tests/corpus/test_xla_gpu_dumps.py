"""Dumps that JAX made on a GPU: elements written in short, and ranges from the HLO text alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from treadle.core.errors import InputError
from treadle.frontends.xla_dump import XlaDump, parse_hlo, print_file, read_dump, rederive, xla_plan
from treadle.frontends.xla_dump.derive_values import with_derived_values
from treadle.frontends.xla_dump.elements import with_elements
from treadle.frontends.xla_dump.plan import plan_dump
from treadle.lab.cli import main
from treadle.memory.validate import violations

HERE = Path(__file__).parent / "xla" / "gpu"
ASSIGNMENTS = sorted(HERE.glob("*-buffer-assignment.txt"))
STEM = ".gpu_after_optimizations-buffer-assignment.txt"

of_each = pytest.mark.parametrize("path", ASSIGNMENTS, ids=lambda p: p.name.removesuffix(STEM))


def test_there_are_a_dozen_with_the_short_form() -> None:
    assert len(ASSIGNMENTS) == 12
    texts = [Path(str(p).removesuffix("-buffer-assignment.txt") + ".txt") for p in ASSIGNMENTS]
    assert all("is_scheduled=true" in text.read_text("utf-8") for text in texts)
    assert sum("#0" in text.read_text("utf-8") for text in texts) >= 11


@of_each
def test_everything_a_gpu_dump_claims_is_worked_out_again(path: Path) -> None:
    dump = read_dump(str(path))
    for file in dump.files:
        assert print_file(dump, file) == Path(file.name).read_text("utf-8")
    assert dump.findings == ()
    found = rederive(dump)
    assert found.differences == []
    assert found.notes == []
    assert found.checked == found.total
    assert found.checked["live_ranges"] == len(dump.range_of) > 0


def without_live(path: Path, folder: Path, *more: str) -> XlaDump:
    for other in path.parent.glob(path.name.removesuffix("-buffer-assignment.txt") + "*"):
        if not any(part in other.name for part in ("live-range", *more)):
            shutil.copy(other, folder)
    return read_dump(str(folder / path.name))


def together(dump: XlaDump) -> set[tuple[str, str]]:
    """Which values live at once; tables of pointers end where their last element is taken out."""
    lives = {
        str(one.value.place): dump.range_of[one.value.place]
        for _, one in dump.assigned()
        if one.value.place in dump.range_of and not one.shape.startswith("(")
    }
    return {
        (a, b)
        for a, b in combinations(sorted(lives), 2)
        if lives[a].start <= lives[b].end and lives[b].start <= lives[a].end
    }


@of_each
def test_without_live_ranges_the_order_of_the_text_gives_them(path: Path, tmp_path: Path) -> None:
    given, derived = read_dump(str(path)), without_live(path, tmp_path)
    assert derived.live is not None
    assert derived.live.is_derived
    assert set(derived.range_of) == set(given.range_of)
    assert together(derived) == together(given)
    assert violations(*xla_plan(derived)) == ()
    assert plan_dump(derived, steps=2000).after.temp_bytes <= derived.temp_bytes
    found = rederive(derived)
    assert found.differences == []
    assert found.checked["live_ranges"] == 0, "what was worked out here proves nothing"


def flows(dump: XlaDump) -> dict[str, tuple[set[object], set[object]]]:
    """Positions and uses of every value that has a live range."""
    return {
        str(used.value.place): (
            {p.place for p in used.positions},
            {(u.name, u.operand, u.index or ()) for u in used.uses},
        )
        for used in dump.used
        if used.value.place in dump.range_of
    }


@of_each
def test_without_used_values_the_text_says_where_values_flow(path: Path, tmp_path: Path) -> None:
    given = read_dump(str(path))
    found = with_derived_values(replace(given, values=None, live=None))
    assert found.values is not None
    assert found.values.is_derived
    assert flows(replace(found, live=given.live)) == flows(given)
    derived = without_live(path, tmp_path, "-values", "-report")
    assert [finding.code for finding in derived.findings] == ["XLA003"]
    assert together(derived) == together(given)
    assert violations(*xla_plan(derived)) == ()
    assert rederive(derived).differences == []


def test_the_text_of_another_program_gives_nothing(tmp_path: Path) -> None:
    path = HERE / f"scan_train_bfloat16{STEM}"
    other = HERE / "while_newton_float32.gpu_after_optimizations.txt"
    shutil.copy(path, tmp_path)
    shutil.copy(other, tmp_path / path.name.replace("-buffer-assignment", ""))
    dump = read_dump(str(tmp_path / path.name))
    assert dump.values is None
    with pytest.raises(InputError, match="only part of them"):
        plan_dump(dump)


@pytest.mark.parametrize("gone", [(), ("-values",)])
@pytest.mark.parametrize("command", ["check", "show", "plan", "schedule"])
def test_commands_take_a_dump_without_live_ranges(
    command: str, gone: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = HERE / f"scan_train_bfloat16{STEM}"
    without_live(path, tmp_path, *gone)
    assert main([command, str(tmp_path / path.name)]) == 0
    assert "Traceback" not in capsys.readouterr().err


HLO = """HloModule m, is_scheduled=true

ENTRY %main (p: (f32[4], (f32[2], s32[]))) -> f32[4] {
  %p = (f32[4]{0}, (f32[2]{0}, s32[])) parameter(0)
  %b = f32[2,2]{1,0} bitcast(%p#0)
  %f = (f32[4]{0}, f32[2]{0}) fusion(%b, %p#1#0, %p#0), kind=kLoop, calls=%g
  ROOT %r = f32[4]{0} add(%f#0, %p#0)
}
"""


def test_elements_stand_before_their_first_user_and_once() -> None:
    entry = with_elements(parse_hlo(HLO)).entry
    assert [one.name for one in entry.instructions] == [
        "p", "p#0", "b", "p#1", "p#1#0", "f", "f#0", "r",
    ]  # fmt: skip
    implied = [one for one in entry.instructions if one.is_implied]
    assert [str(one.shape) for one in implied] == [
        "f32[4]", "(f32[2], s32[])", "f32[2]", "f32[4]",
    ]  # fmt: skip


@pytest.mark.parametrize("operand", ["%f#2", "%gone#0", "%b#0", "%p#1#2"])
def test_an_element_that_is_not_there_is_a_finding(operand: str) -> None:
    module = with_elements(parse_hlo(HLO.replace("add(%f#0", f"add({operand}")))
    names = {name for _, name in module.dangling() if name != "g"}
    assert names == {operand.removeprefix("%")}


def test_a_damaged_order_is_still_found() -> None:
    path = HERE / f"mlp_train_bfloat16{STEM}"
    dump = read_dump(str(path))
    assert dump.live is not None
    names = list(dump.live.sequence)
    first, second = [k for k, name in enumerate(names) if "gemm" in name][:2]
    names[first], names[second] = names[second], names[first]
    swapped = replace(dump, live=replace(dump.live, sequence=tuple(names)))
    assert "XLA011" in {finding.code for finding in rederive(swapped).differences}
