"""Real dumps, imported and written again: no claim is off, the same program is read from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treadle.frontends.inductor_dump import (
    InductorDump,
    export_dump,
    export_program,
    import_program,
    parse_dump,
    print_dump,
    read_dump,
    rederive,
)
from treadle.frontends.inductor_dump.model import DumpSection

HERE = Path(__file__).parent
SHARED = HERE.parents[1].parent / "shared"
GATHERED = sorted(SHARED.glob("dumps/inductor/*/*.txt"))
FIXTURES = sorted((HERE / "inductor").glob("*.txt"))

# Fixtures whose text comes back byte for byte. The others lose what a program does not keep: the
# kind of a fused group, bounds checks, conversions that change nothing, the type of a constant.
IDENTICAL = {
    "collectives.0.pre", "concatenate.0.pre", "conditional.0.pre", "conditional.1.pre",
    "conditional.2.pre", "foreach.0.pre",
    "gpu_scan", "gpu_bucketize", "gpu_combined",
    "indirect_dynamic.0.pre", "memory_checks.0.post", "memory_checks.0.pre", "mutations.0.pre",
    "outer_loop_fusion.0.pre", "random_numbers.0.post", "random_numbers.0.pre", "scatter.0.pre",
    "several_outputs.0.pre", "softmax.0.pre", "softmax_dynamic.0.pre", "training.1.pre",
    "welford.0.pre",
}  # fmt: skip


def as_file(section: DumpSection, dump: InductorDump) -> str:
    """The text of one section as a file would have it."""
    plain = replace(section, title="", prefix="", foreign=(), final_newlines=3)
    dialect = replace(dump.dialect, keeps_trailing_spaces=True, newline="\n")
    return print_dump(InductorDump(dialect, (plain,)))


@pytest.mark.parametrize("path", [*FIXTURES, *GATHERED], ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_dump_comes_back_as_the_same_program(path: Path) -> None:
    comes_back(path)


@pytest.mark.parametrize("number", ["000", "001", "003"])
def test_a_seed_comes_back_as_the_same_program(number: str) -> None:
    found = sorted(SHARED.glob(f"seeds/{number}_*.txt"))
    if not found:
        pytest.skip(f"seed {number} is not beside the repository")
    comes_back(found[0])


def comes_back(path: Path) -> None:
    dump = read_dump(str(path))
    for section in dump.sections:
        program = import_program(section).program
        written = print_dump(export_dump(program, dump.dialect))
        back = parse_dump(written)
        assert [str(d) for d in rederive(back).differences] == []
        assert back.unknown_count == 0
        assert import_program(back).program == program


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_which_fixtures_come_back_byte_for_byte(path: Path) -> None:
    dump = read_dump(str(path))
    same = [
        print_dump(export_dump(import_program(s).program, replace(dump.dialect, newline="\n")))
        == as_file(s, dump)
        for s in dump.sections
    ]
    assert all(same) is (path.stem in IDENTICAL or path.stem == "foreach.log")


@pytest.mark.parametrize("dialect", ["2.5", "2.6", "2.13"])
@pytest.mark.parametrize("name", ["mutations.0.post", "collectives.0.post", "training.0.post"])
def test_a_dump_can_be_written_in_every_dialect(name: str, dialect: str) -> None:
    program = import_program(read_dump(str(HERE / "inductor" / f"{name}.txt"))).program
    exported = export_program(program, dialect)
    text = print_dump(exported.dump)
    back = parse_dump(text)
    assert [str(d) for d in rederive(back).differences] == []
    assert back.dialect.version == dialect
    assert ("_input_distance" in text) is (dialect == "2.13")
    assert ("is_fake" in text) is (dialect == "2.13" and "WeakDep" in text)
    again = import_program(back).program
    assert [op.name for op in again.leaves] == [op.name for op in program.leaves]
    assert again.outputs == program.outputs
