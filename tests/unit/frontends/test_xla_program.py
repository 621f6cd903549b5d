"""The schedule of a dump as a program: sound, in order, with the lives XLA sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treadle.analysis.liveness import Liveness, LivenessPolicy
from treadle.frontends.xla_dump import parse_dump, read_dump
from treadle.frontends.xla_dump.import_program import import_program
from treadle.frontends.xla_dump.survey import survey
from treadle.ir.program import Extern
from treadle.ir.spec import violations
from treadle.ir.text import parse_program, show_program

CORPUS = Path(__file__).parents[2] / "corpus" / "xla"
SHARED = Path(__file__).parents[3].parent / "shared"
SMALL = read_dump(str(CORPUS / "small.2024-11-buffer-assignment.txt"))
LOOP = read_dump(str(CORPUS / "loop.2024-11-buffer-assignment.txt"))
ALL = [
    *sorted(CORPUS.glob("*.2024-11-buffer-assignment.txt")),
    *sorted(SHARED.glob("seeds/002_*.txt")),
    *sorted(SHARED.glob("dumps/xla/*/*-buffer-assignment.txt")),
]


@pytest.mark.parametrize("path", ALL, ids=lambda p: f"{p.parent.name}-{p.stem[:20]}")
def test_programs_of_dumps_are_sound_and_read_back(path: Path) -> None:
    dump = read_dump(str(path))
    for known in (dump, replace(dump, module=None)):
        program = import_program(known)
        assert list(violations(program)) == []
        assert parse_program(show_program(program), "again") == program


def test_there_is_one_call_for_each_instruction_in_order() -> None:
    program = import_program(SMALL)
    names = [op.name for op in program.ops]
    assert names == ["one", "mul", "pair", "first", "sum", "total", "new_b", "out"]
    calls = {op.name: op for op in program.ops if isinstance(op, Extern)}
    assert len(calls) == len(names)
    assert (calls["mul"].target, calls["total"].target) == ("multiply", "reduce")
    assert calls["pair"].writes == ("pair{}", "pair{0}", "pair{1}")
    assert (program.inputs, program.donated) == (("a", "b"), ("b",))
    assert set(program.outputs) == {"new_b", "total", "out{}"}


def test_buffers_have_the_types_of_their_shapes_and_tables_are_bytes() -> None:
    buffers = import_program(SMALL).by_name
    assert (buffers["mul"].dtype.text, buffers["mul"].storage_bytes) == ("f32", 256)
    assert (buffers["pair{}"].dtype.text, buffers["pair{}"].storage_bytes) == ("u8", 16)


def test_a_value_written_in_place_is_a_view_that_is_overwritten() -> None:
    program = import_program(SMALL)
    assert program.by_name["sum"].view_of == "pair{0}"
    call = program.op_by_name["sum"]
    assert isinstance(call, Extern)
    assert (call.writes, call.mutates) == ((), ("sum",))


def test_the_state_of_a_loop_is_one_storage() -> None:
    program = import_program(LOOP)
    state = {program.storage_of(n) for n in ("i0", "c_state{0}", "b_state{0}", "next_i")}
    assert state == {"i0"}


def test_the_program_of_the_seed_has_the_peak_of_the_seed() -> None:
    seeds = sorted(SHARED.glob("seeds/002_*.txt"))
    if not seeds:
        pytest.skip("seed 002 is not beside the repository")
    dump = read_dump(str(seeds[0]))
    program = import_program(dump, device="cuda:0")
    peak = Liveness(program, LivenessPolicy(in_place=False)).peak()
    assert (peak.bytes, peak.at) == (1_092_637_220, "tuple")
    assert peak.bytes == survey(dump).peak


def test_a_part_of_a_dump_is_no_program() -> None:
    text = (CORPUS / "small.2026-04-live-range.txt").read_text("utf-8")
    with pytest.raises(Exception, match="expected allocations, used values and live ranges"):
        import_program(parse_dump(text))
