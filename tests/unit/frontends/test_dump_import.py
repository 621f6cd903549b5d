"""Dumps become programs: what each kind of node turns into, and what is assumed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from treadle.frontends.inductor_dump import import_program, parse_dump, read_dump, unpacked
from treadle.frontends.inductor_dump.import_body import compute_type
from treadle.ir.interp import run
from treadle.ir.interp.compare import differing_results, random_inputs
from treadle.ir.program import (
    Collective,
    Extern,
    Foreach,
    Fused,
    Loop,
    MultiOutput,
    Nop,
    Program,
    Template,
    Wait,
)
from treadle.ir.text import parse_program, show_program
from treadle.ir.types import DType
from treadle.testing.stand_ins import stand_ins

CORPUS = Path(__file__).parents[2] / "corpus" / "inductor"
FIXTURES = sorted(CORPUS.glob("*.txt"))


def program_of(name: str) -> Program:
    return import_program(read_dump(str(CORPUS / name))).program


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_every_section_becomes_a_sound_program_with_a_text_form(path: Path) -> None:
    for section in read_dump(str(path)).sections:
        program = import_program(section).program
        assert parse_program(show_program(program)) == program
        assert [leaf.name for leaf in section.leaves()] == sorted(
            (leaf.name for leaf in program.leaves),
            key=[leaf.name for leaf in section.leaves()].index,
        )


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_ungrouping_keeps_the_meaning(path: Path) -> None:
    for section in read_dump(str(path)).sections:
        program = import_program(section).program
        if any(isinstance(op, Template) for op in program.leaves):
            continue  # a template with an epilogue has no meaning as separate calls here
        if "scan unknown" in show_program(program):
            continue  # a dump does not say how a scan combines
        flat = unpacked(program)
        assert not any(type(op).__name__ in ("Fused", "Foreach", "MixOrder") for op in flat.ops)
        assert differing_results(program, flat, externs=stand_ins(program)) == []


def test_a_softmax_computes_a_softmax() -> None:
    for name in ("softmax.0.pre.txt", "softmax.0.post.txt"):
        program = program_of(name)
        inputs = random_inputs(program)
        x = inputs[program.inputs[0]].astype(np.float64)
        e = np.exp(x - x.max(-1, keepdims=True))
        found = run(program, inputs).outputs
        assert any(
            o.shape == x.shape and np.allclose(o, e / e.sum(-1, keepdims=True), atol=1e-6)
            for o in found
        )


def test_parts_of_a_concatenation_are_views_behind_each_other() -> None:
    program = program_of("concatenate.0.pre.txt")
    parts = [program.by_name[n] for n in ("buf0", "buf1")]
    assert [p.view_of for p in parts] == ["buf2", "buf2"]
    assert [p.layout.offset.value for p in parts] == [0, 16]
    assert isinstance(program.ops[0], Nop), "the whole is allocated before its parts are written"
    inputs = random_inputs(program)
    a, b = inputs["arg0_1"].astype(np.float64), inputs["arg1_1"].astype(np.float64)
    wanted = np.concatenate([np.maximum(np.sin(a), 0), np.maximum(np.cos(b), 0)])
    assert np.allclose(run(program, inputs).read("buf2"), wanted, atol=1e-6)


def test_a_mutation_is_a_store_to_what_is_mutated() -> None:
    program = program_of("mutations.0.pre.txt")
    stores = {name for op in program.leaves if isinstance(op, Loop)
              for name, _, _, _ in op.body.stores()}  # fmt: skip
    assert {"arg0_1", "arg1_1"} <= stores
    assert "buf3" not in program.by_name, "a version of an input is no buffer"
    assert set(program.outputs) >= {"arg0_1", "arg1_1"}


def test_collectives_and_waits_keep_their_meaning() -> None:
    program = program_of("collectives.0.post.txt")
    kinds = [type(op) for op in program.leaves]
    assert kinds.count(Collective) == 4
    assert kinds.count(Wait) == 6
    functional = [op for op in program.leaves if isinstance(op, Collective) and not op.mutates]
    assert functional, "an out-of-place collective changes nothing"


def test_a_tuple_is_taken_apart_in_order_of_creation() -> None:
    program = program_of("several_outputs.0.pre.txt")
    taken = [op for op in program.leaves if isinstance(op, MultiOutput)]
    assert [op.position for op in taken] == [0, 1, 2]
    assert len({op.source for op in taken}) == 1


def test_groups_of_a_dump_stay_groups() -> None:
    assert any(isinstance(op, Fused) for op in program_of("softmax.0.post.txt").ops)
    assert any(isinstance(op, Foreach) for op in program_of("gpu_combined.txt").ops)


def test_a_body_that_says_too_little_is_kept_opaque() -> None:
    text = (CORPUS / "gpu_scan.txt").read_text().replace("self.scan1(", "self.mystery1(")
    imported = import_program(parse_dump(text, "mystery"))
    assert [a.code for a in imported.assumptions] == ["IND020"]
    (op,) = imported.program.ops
    assert isinstance(op, Extern)
    assert op.target == "inductor.loop"
    assert op.writes == ("buf0",) or op.writes[0].startswith("buf")


def test_an_input_that_only_calls_read_has_no_size() -> None:
    imported = import_program(read_dump(str(CORPUS / "several_outputs.0.pre.txt")))
    assert imported.unknown_inputs == imported.program.inputs
    assert "IND021" in [a.code for a in imported.assumptions]


def test_bf16_is_computed_in_f32_and_rounded_at_the_store() -> None:
    assert compute_type(DType.BF16) is DType.F32
    assert compute_type(DType.I8) is DType.I8
    program = import_program(parse_dump(BF16)).program
    (op,) = program.ops
    assert isinstance(op, Loop)
    casts = [at.stmt for at in op.body.walk() if at.stmt.op == "cast"]
    assert [c.attrs for c in casts] == [(DType.F32,)]
    x = np.array([1.0, 1.0078125, 3.0, -2.0])
    inputs = {"arg0_1": x.astype(program_dtype())}
    # In bf16 steps (x + 1) + 1 would lose a bit of 1.0078125; in f32 it is rounded once.
    assert run(program, inputs).outputs[0].astype(np.float64).tolist() == [3.0, 3.0, 5.0, 0.0]


def program_dtype() -> np.dtype:  # type: ignore[type-arg]
    from treadle.ir.interp.dtypes import NUMPY_TYPES

    return NUMPY_TYPES[DType.BF16]


BF16 = """op0: SchedulerNode(ComputedBuffer)
op0.writes = [MemoryDep('buf0', c0, {c0: 4})]
op0.unmet_dependencies = []
op0.met_dependencies = [MemoryDep('arg0_1', c0, {c0: 4})]
op0.outputs = [
    buf0: ComputedBuffer
    buf0.layout = FixedLayout('cpu', torch.bfloat16, size=[4], stride=[1])
    buf0.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]
]
op0.group.device = cpu
op0.group.iteration = ((4,), ())
op0.sizes = ([4], [])
arg0_1_layout = FixedLayout('cpu', torch.bfloat16, size=[4], stride=[1])
buf0_layout = FixedLayout('cpu', torch.bfloat16, size=[4], stride=[1])
class op0_loop_body:
    var_ranges = {p0: 4}
    index0 = p0
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('arg0_1', get_index)
        constant = ops.constant(1.0, torch.bfloat16)
        add = ops.add(load, constant)
        add_1 = ops.add(add, constant)
        get_index_1 = self.get_index('index0')
        store = ops.store('buf0', get_index_1, add_1, None)
        return store


"""


def collective_without_wait() -> str:
    return """op0: ExternKernelSchedulerNode(_CollectiveKernel)
op0.writes = [StarDep(name='buf0', mode=None)]
op0.unmet_dependencies = []
op0.met_dependencies = [StarDep(name='arg0_1', mode=None)]
op0.outputs = [
    buf0: _CollectiveKernel
    buf0.layout = FixedLayout('cpu', torch.float32, size=[4], stride=[1])
    buf0.users = []
]
op0.node.kernel = torch.ops._c10d_functional.all_reduce.default


op1: ExternKernelSchedulerNode(ExternKernelOut)
op1.writes = [StarDep(name='buf1', mode=None)]
op1.unmet_dependencies = [StarDep(name='buf0', mode=None)]
op1.met_dependencies = []
op1.outputs = [
    buf1: ExternKernelOut
    buf1.layout = FixedLayout('cpu', torch.float32, size=[4], stride=[1])
    buf1.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]
]
op1.node.kernel = extern_kernels.something


"""


def test_a_collective_whose_result_is_used_without_a_wait_finishes_at_once() -> None:
    imported = import_program(parse_dump(collective_without_wait()))
    first = imported.program.ops[0]
    assert isinstance(first, Extern)
    assert first.has_side_effects
    assert "IND023" in [a.code for a in imported.assumptions]


def test_operands_of_a_product_are_put_in_order_or_the_guess_is_reported() -> None:
    imported = import_program(read_dump(str(CORPUS / "training.1.pre.txt")))
    products = [op for op in imported.program.leaves if isinstance(op, Extern)]
    assert products
    for op in products:
        left, right = (imported.program.by_name[a.buffer].layout.sizes for a in op.args)  # type: ignore[union-attr]
        out = imported.program.by_name[op.writes[0]].layout.sizes
        assert (left[0], right[1]) == out
        assert left[1] is right[0]


def test_a_guessed_product_says_so() -> None:
    square = collective_without_wait().replace("_CollectiveKernel", "ExternKernelOut")
    square = square.replace("torch.ops._c10d_functional.all_reduce.default", "extern_kernels.mm")
    square = square.replace("size=[4], stride=[1]", "size=[4, 4], stride=[4, 1]")
    both = "[StarDep(name='arg0_1', mode=None), StarDep(name='buf0', mode=None)]"
    text = square.replace("extern_kernels.something", "extern_kernels.mm").replace(
        "op1.met_dependencies = []", "op1.met_dependencies = [StarDep(name='arg0_1', mode=None)]"
    )
    assert both not in text
    assert "IND022" in [a.code for a in import_program(parse_dump(text)).assumptions]


def test_a_value_with_several_results_used_as_one_is_kept_opaque() -> None:
    text = (CORPUS / "softmax.0.post.txt").read_text().replace("ops.exp(", "ops.frexp(")
    imported = import_program(parse_dump(text))
    opaque = [a.message for a in imported.assumptions if a.code == "IND020"]
    assert any("several results" in message for message in opaque)


TOO_FEW = ("sort(load)", "constant()", "reduction()", "to_dtype(load)", "rand()", "where()",
           "bucketize(load)", "add()", "load_seed()")  # fmt: skip


@pytest.mark.parametrize("call", TOO_FEW)
def test_an_operation_with_too_few_arguments_is_kept_opaque(call: str) -> None:
    text = (CORPUS / "softmax.0.post.txt").read_text()
    changed = re.sub(r"(?<=ops\.)exp\([^)]*\)", call, text)
    assert changed != text
    imported = import_program(parse_dump(changed))
    assert any(a.code == "IND020" for a in imported.assumptions)
