"""Real and made-up XLA dumps come back byte for byte, and all they claim is worked out again."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.core.errors import InputError
from treadle.frontends.xla_dump import (
    FILE_KINDS,
    XlaDump,
    kind_of_text,
    print_file,
    print_report,
    read_dump,
    rederive,
    xla_plan,
)
from treadle.frontends.xla_dump.survey import survey
from treadle.memory.validate import violations

HERE = Path(__file__).parent / "xla"
SHARED = Path(__file__).parents[2].parent / "shared"
GATHERED = sorted(SHARED.glob("dumps/xla/*/*.txt"))
FIXTURES = sorted(HERE.glob("*.txt"))


def seed() -> Path:
    found = sorted(SHARED.glob("seeds/002_*.txt"))
    if not found:
        pytest.skip("seed 002 is not beside the repository")
    return found[0]


def read_exactly(path: Path) -> XlaDump:
    text = path.read_bytes().decode("utf-8")
    assert kind_of_text(text) in FILE_KINDS
    dump = read_dump(str(path))
    for file in dump.files:
        assert print_file(dump, file) == Path(file.name).read_bytes().decode("utf-8")
    if dump.report:
        printed = print_report(dump.report)
        assert printed == Path(dump.report.file).read_bytes().decode("utf-8")
    assert dump.unknown_count == 0
    assert not [finding for finding in dump.findings if not finding.is_note]
    return dump


def check_all_claims(dump: XlaDump) -> None:
    found = rederive(dump)
    assert found.differences == []
    assert found.notes == []
    assert found.checked == found.total


def test_the_seed_has_the_known_figures() -> None:
    dump = read_exactly(seed())
    assert dump.live is not None
    assert dump.live.peak is not None
    assert (len(dump.allocations), len(dump.used)) == (54, 135)
    assert (len(dump.live.sequence), len(dump.live.ranges)) == (166, 132)
    assert dump.total_bytes == 1_093_622_736
    assert dump.temp_bytes == 985_504
    assert dump.live.peak.moment == 158
    assert sum(row.size for row in dump.live.peak.lines) == 1_092_637_220
    figures = survey(dump)
    assert figures.bytes == {
        "parameter": 815_092_228,
        "donated": 0,
        "output": 277_544_992,
        "constant": 0,
        "thread-local": 12,
        "temp": 985_504,
    }
    assert (figures.peak, figures.peak_at) == (1_092_637_220, "158 (tuple)")
    assert figures.temp_bound == 851_968
    assert figures.joint_bound == 277_544_992
    assert figures.alignment == 128


def test_every_live_range_of_the_seed_is_worked_out_again() -> None:
    dump = read_exactly(seed())
    check_all_claims(dump)
    assert rederive(dump).checked["live_ranges"] == 132


def test_the_seed_is_read_and_checked_in_a_second() -> None:
    start = time.process_time()
    rederive(read_dump(str(seed())))
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("path", GATHERED, ids=lambda p: f"{p.parent.name}-{p.stem[-22:]}")
def test_gathered_dumps_come_back_and_their_claims_hold(path: Path) -> None:
    check_all_claims(read_exactly(path))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_fixtures_come_back_and_their_claims_hold(path: Path) -> None:
    check_all_claims(read_exactly(path))


def assignments() -> list[Path]:
    return [p for p in (*GATHERED, *FIXTURES) if p.name.endswith("-buffer-assignment.txt")]


@pytest.mark.parametrize("path", assignments(), ids=lambda p: f"{p.parent.name}-{p.stem[:24]}")
def test_the_plans_of_xla_pass_the_validator_with_and_without_hlo_text(path: Path) -> None:
    dump = read_dump(str(path))
    if dump.live is None:
        with pytest.raises(InputError, match="live ranges"):
            xla_plan(dump)
        return
    for known in (dump, replace(dump, module=None)):
        assert violations(*xla_plan(known)) == ()


@pytest.mark.parametrize("path", assignments(), ids=lambda p: f"{p.parent.name}-{p.stem[:24]}")
def test_without_hlo_text_nothing_is_called_wrong(path: Path) -> None:
    dump = replace(read_dump(str(path)), module=None)
    found = rederive(dump)
    assert found.differences == []
    has_loop = any(used.value.is_phi for used in dump.used)
    assert {note.code for note in found.notes} <= ({"XLA015"} if has_loop else set())


def test_the_fixtures_are_what_their_maker_writes() -> None:
    spec = importlib.util.spec_from_file_location("make_xla_dumps", HERE / "make_dumps.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = maker  # dataclasses look their module up
    try:
        spec.loader.exec_module(maker)
        made = maker.all_files()
    finally:
        del sys.modules[spec.name]
    assert {path.name for path in FIXTURES} == set(made)
    for path in FIXTURES:
        assert path.read_text("utf-8") == made[path.name]
