"""Programs written as dumps: names, versions, bodies, calls, groups, and what cannot be said."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.frontends.inductor_dump import (
    export_dump,
    export_program,
    import_program,
    parse_dump,
    print_dump,
    rederive,
)
from treadle.frontends.inductor_dump.export_fx import FxNames
from treadle.index import Const
from treadle.ir.body import Literal
from treadle.ir.build import BodyBuilder, ProgramBuilder
from treadle.ir.interp import run
from treadle.ir.interp.compare import differing_results, random_inputs
from treadle.ir.program import (
    Collective,
    Extern,
    Foreach,
    Fused,
    Grouped,
    Loop,
    MixOrder,
    MultiOutput,
    Nop,
    Program,
    Ref,
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.spec import verify
from treadle.ir.text_print import show_operation
from treadle.ir.types import Buffer, BufferKind, DType, Layout


def text_of(program: Program, dialect: str = "2.13") -> str:
    """The dump of a sound program, which passes every check."""
    text = print_dump(export_dump(verify(program), dialect))
    assert [str(d) for d in rederive(parse_dump(text)).differences] == []
    return text


def back(program: Program) -> Program:
    """The program that is read from the dump."""
    return import_program(parse_dump(text_of(program)), program.name).program


def tensor(name: str, *sizes: int, dtype: DType = DType.F32) -> Buffer:
    return Buffer(name, dtype, Layout.contiguous(sizes))


def relu_chain() -> ProgramBuilder:
    b = ProgramBuilder("demo")
    x = b.input("x", "bf16", [4, 8])
    h = b.buffer("h", "bf16", [4, 8])
    with b.loop("first", [4, 8]) as k:
        v = k.load(x, *k.vars).to("f32")
        k.store(h, k.vars, k.relu(v))
    y = b.output("y", "f32", [4])
    with b.loop("total", [4], reduce=[8]) as k:
        k.store(y, k.domain.vars, k.reduce_by("sum", k.load(h, *k.vars).to("f32")))
    return b


def test_operations_and_buffers_are_numbered_and_the_mapping_is_given() -> None:
    exported = export_program(verify(relu_chain().build()))
    assert exported.names == {"first": "op0", "total": "op1", "h": "buf0", "y": "buf1"}
    assert exported.notes == ()
    assert [node.name for node in exported.dump.nodes] == ["op0", "op1"]


def test_conversions_to_the_type_of_computing_are_not_shown() -> None:
    text = text_of(relu_chain().build())
    assert "load = ops.load('x', get_index)\n        relu = ops.relu(load)" in text
    assert "to_dtype" not in text
    assert "store_reduction = ops.store_reduction('buf1', get_index_1, reduction)" in text


def test_names_that_dumps_use_stay_unless_their_order_is_wrong() -> None:
    b = ProgramBuilder("p")
    x = b.input("arg0_1", "f32", [4])
    for op, source, target in (("op7", x, "buf9"), ("op3", None, "buf2")):
        made = b.output(target, "f32", [4])
        with b.loop(op, [4]) as k:
            k.store(made, k.vars, k.load(source or b.buffers["arg0_1"], *k.vars))
    assert export_program(b.build()).names == {}
    with b.loop("op1", [4]) as k:  # reads what op7 made, so it cannot be older
        last = b.output("buf11", "f32", [4])
        k.store(last, k.vars, k.load(b.buffers["buf9"], *k.vars))
    names = export_program(b.build()).names
    assert names == {"op7": "op0", "op3": "op1", "op1": "op2"}


def test_each_version_of_a_buffer_has_a_name() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [4])
    for name in ("first", "second"):
        with b.loop(name, [4]) as k:
            k.store(x, k.vars, k.load(x, *k.vars) + 1.0)
    b.returns("x")
    text = text_of(b.build())
    assert text.count("mutations = ['x']") == 2
    assert "op1.unmet_dependencies = [MemoryDep('buf0', c0, {c0: 4}), StarDep(name='buf0'" in text
    assert "ops.store('buf1', get_index_1, add, None)" in text
    assert "ops.load('x'" in text.partition("class op1_loop_body")[2]


def test_rounding_to_a_narrow_type_is_said() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "bf16", [4]), b.output("y", "bf16", [4])
    with b.loop("double", [4]) as k:
        v = k.load(x, *k.vars)
        k.store(y, k.vars, (v * v + v) * k.constant(0.1, "bf16"))
    program = b.build()
    rounding = "torch.bfloat16, src_dtype = torch.float32, use_compute_types = False)"
    assert text_of(program).count(rounding) == 4
    again = back(program)
    assert type(again.ops[0]) is Loop
    assert results_agree(program)


def test_a_masked_block_computes_what_it_needs_from_outside_again() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [8]), b.output("y", "f32", [8])
    with b.loop("shift", [8]) as k:
        (i,) = k.vars
        v = k.load(x, i)
        mask = k.index(i) > k.index(0)
        k.store(y, i, k.masked(mask, 0.5, lambda: k.load_at(x, i - 1) + v) * v)
    program = b.build()
    text = text_of(program)
    inside = text.partition("def masked_subblock1")[2]
    assert inside.count("ops.load(") == 2
    assert "masked_subblock1(gt, 0.5)" in text
    assert results_agree(program)


def results_agree(program: Program, **given: object) -> bool:
    """Whether the program and what is read from its dump leave the same in the outputs."""
    exported = export_program(program)
    again = import_program(parse_dump(print_dump(exported.dump))).program
    inputs = {**random_inputs(program), **given}
    one, other = run(program, inputs), run(again, inputs)
    return all((one.read(o) == other.read(exported.names.get(o, o))).all() for o in program.outputs)


def test_an_index_that_counts_from_the_end_shows_it_where_readers_would_not_know() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [6])
    at, y = b.input("at", "i64", [4]), b.output("y", "f32", [4])
    with b.loop("gather", [4]) as k:
        where = k.indirect(k.load(at, *k.vars), 3, wrap=True)
        k.store(y, k.vars, k.load_at(x, 2 * where))
    program = b.build()
    text = text_of(program)
    assert "set_indirect0 = self.set_indirect0(where)" in text
    assert "ops.lt(load, constant)" in text
    assert results_agree(program, at=np.array([0, -1, -3, 2]))


def test_seeds_sorts_and_tables_have_their_own_forms() -> None:
    b = ProgramBuilder("p")
    seeds, table = b.input("seeds", "i64", [2]), b.input("table", "f32", [5])
    x, y = b.input("x", "f32", [3, 4]), b.output("y", "f32", [3, 4])
    z = b.output("z", "i64", [3, 4])
    with b.loop("ordered", [3], reduce=[4]) as k:
        value, position = k.sort(k.load(x, *k.vars), k.index(k.vars[1], "i16"), stable=False)
        k.store(y, k.vars, value)
        k.store(z, k.vars, k.bucketize(value, table) + position.to("i64"))
    r = b.output("r", "f32", [4])
    with b.loop("noise", [4]) as k:
        k.store(r, k.vars, k.random("rand", k.load_at(seeds, 1), k.index(k.vars[0], "i32")))
    program = b.build()
    text = text_of(program)
    assert "load_seed = ops.load_seed('seeds', 1)" in text
    assert "sort = ops.sort((torch.float32, torch.int16), (load, index_expr), False, False)" in text
    assert "('table', get_index_3, get_index_4, get_index_5), 0, torch.int64, False" in text
    assert results_agree(program)


def test_a_scan_is_shown_without_its_combination_and_a_note_says_so() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
    with b.loop("running", [], reduce=[4]) as k:
        k.store(y, k.vars, k.scan("add", k.load(x, *k.vars)))
    program = b.build()
    exported = export_program(program)
    assert [note.code for note in exported.notes] == ["IND024"]
    assert "scan1 = self.scan1((torch.float32,), (load,))" in text_of(program)
    (op,) = back(program).ops
    assert isinstance(op, Loop)
    assert "scan unknown" in show_operation(op)


def test_a_body_that_cannot_be_said_is_an_opaque_node_with_its_layouts() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [4]), b.output("y", "f64", [4])
    with b.loop("noise", [4]) as k:
        seed = k.load(x, *k.vars).to("i64")
        k.store(y, k.vars, k.random("rand", seed, k.index(k.vars[0]), "f64"))
    program = b.build()
    exported = export_program(program)
    assert "its body is not shown: rand of another type" in exported.notes[0].message
    again = back(program)
    (op,) = again.ops
    assert isinstance(op, Extern)
    assert op.target == "inductor.loop"
    assert again.by_name["x"].layout == program.by_name["x"].layout


def calls() -> Program:
    """Every kind of call, in an order that is possible."""
    tensors = [tensor(n, 4) for n in ("x", "w", "a", "b", "c", "first", "second", "g", "t")]
    both = Buffer("both", DType.U8, Layout.contiguous([0]), kind=BufferKind.TUPLE)
    ops = (
        Extern(name="copy", target="aten.copy", args=(Ref("x"), Literal(2.0)), writes=("a",)),
        UserKernel(name="mine", target="my_kernel", args=(Ref("x"),), mutates=("a",)),
        Extern(name="split", target="aten.split", args=(Ref("a"),), writes=("both",)),
        MultiOutput(name="take0", source="both", position=0, target="first"),
        MultiOutput(name="take1", source="both", position=1, target="second"),
        Nop(name="empty", writes=("b",)),
        Collective(name="send", target="c10d.gather", args=(Ref("x"),), writes=("g",), group="0"),
        Extern(name="log", target="aten.print", args=(Ref("a"),), has_side_effects=True),
        Wait(name="wait", buffer="g", after=("log",)),
        Extern(name="fill", target="aten.fill", args=(Ref("w"),), mutates=("b",)),
        Template(name="mm", target="triton.mm", args=(Ref("first"), Ref("b")), writes=("t",)),
        Extern(name="join", target="aten.add", args=(Ref("g"), Ref("second")), writes=("c",)),
    )
    return Program("calls", (*tensors, both), ops, ("x", "w"), ("c", "t", "b"), ("x",))


def test_calls_keep_their_kind_their_effects_and_their_order() -> None:
    program = verify(calls())
    exported = export_program(program)
    again = back(program)
    assert [type(op) for op in again.ops] == [type(op) for op in program.ops]
    old = {exported.names.get(n, n): n for n in program.by_name}
    for one, other in zip(program.ops, again.ops, strict=True):
        assert exported.names[one.name] == other.name
        if isinstance(one, Extern | UserKernel | Collective | Template):
            assert isinstance(other, type(one))
            assert other.target == one.target
            # Whoever writes nothing of its own has a token in a dump.
            made = [w for w in other.writes if again.by_name[w].kind is not BufferKind.TOKEN]
            assert tuple(old[w] for w in made) == one.writes
            assert tuple(old[m] for m in other.mutates) == one.mutates
            assert other.has_side_effects == one.has_side_effects
    assert again.ops[8].after == ("op7",)
    assert [op.position for op in again.ops if isinstance(op, MultiOutput)] == [0, 1]


def test_what_is_lost_of_calls_is_told() -> None:
    notes = " / ".join(note.message for note in export_program(calls()).notes)
    assert "copy: not shown: arguments that are no buffers" in notes
    assert "send: not shown: its group 0" in notes
    assert "not shown: that x may be reused" in notes


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (Fused, "FusedSchedulerNode"),
        (Foreach, "ForeachKernelSchedulerNode"),
        (MixOrder, "FusedMixOrderReductions"),
        (Grouped, "GroupedSchedulerNode"),
    ],
)
def test_a_group_is_a_node_with_members(kind: type[Fused], shown: str) -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [4, 4])
    for name in ("rows", "columns"):
        total = b.output(f"{name}_sum", "f32", [4])
        with b.loop(name, [4], reduce=[4]) as k:
            at = k.vars if name == "rows" else (k.vars[1], k.vars[0])
            k.store(total, k.domain.vars, k.reduce_by("sum", k.load(x, *at)))
    program = b.build()
    program = program.with_ops((kind(name="both", members=program.ops),))
    assert text_of(program).startswith(f"op0_op1: {shown}(SchedulerNode,SchedulerNode)\n")
    (again,) = back(program).ops
    assert type(again) is kind
    assert results_agree(program)


def test_a_group_of_one_is_its_member() -> None:
    program = relu_chain().build()
    alone = Fused(name="alone", members=(program.ops[0],))
    program = program.with_ops((alone, program.ops[1]))
    assert [type(op) for op in back(program).ops] == [Loop, Loop]
    assert export_program(program).names["alone"] == "op0"
    assert results_agree(program)


def filled_in_parts(*parts: tuple[str, int]) -> Program:
    """A [4, 4] buffer that is allocated, then written through views of two rows each."""
    x, whole = tensor("x", 2, 4), tensor("whole", 4, 4)
    rows = Layout.contiguous([2, 4])
    ops: list[Nop | Loop] = [Nop(name="alloc", writes=("whole",))]
    views = []
    for name, start in parts:
        layout = Layout(rows.sizes, rows.strides, Const(start))
        view = Buffer(name, DType.F32, layout, view_of="whole")
        k = BodyBuilder({"x": x, name: view}, [2, 4])
        k.store(view, k.vars, k.load(x, *k.vars) * float(start + 1))
        ops.append(Loop(name=f"fill_{name}", body=k.build()))
        views.append(view)
    return verify(Program("p", (x, whole, *views), tuple(ops), ("x",), ("whole",)))


def test_parts_that_fill_an_allocation_are_a_concatenation() -> None:
    program = filled_in_parts(("top", 0), ("bottom", 8))
    text = text_of(program)
    assert text.count("NonOwningLayout") == 4
    assert "op2: NopKernelSchedulerNode(ConcatKernel)" in text
    again = back(program)
    assert [again.by_name[n].view_of for n in ("buf0", "buf1")] == ["buf2", "buf2"]
    assert results_agree(program)


def test_views_that_do_not_follow_each_other_are_written_as_their_root() -> None:
    program = filled_in_parts(("bottom", 8), ("top", 0))
    text = text_of(program)
    assert text.count("buf2.mutations = ['buf0']") == 1
    assert "ComputedBuffer" in text.partition("NopKernelSchedulerNode(")[2][:20]
    assert results_agree(program)


def test_run_time_sizes_get_names_that_readers_know() -> None:
    b = ProgramBuilder("p")
    n = b.size("rows", lo=1, hi=64, hint=8)
    x, y = b.input("x", "f32", [n, 4]), b.output("y", "f32", [n, 4])
    with b.loop("copy", [n, 4]) as k:
        k.store(y, k.vars, k.load(x, *k.vars))
    exported = export_program(b.build())
    assert exported.names["rows"] == "s0"
    assert "size=[s0, 4], stride=[4, 1]" in print_dump(exported.dump)
    assert "not shown: the bounds of the size rows" in [n.message for n in exported.notes]


def test_a_titled_dump_has_the_form_of_a_log() -> None:
    text = print_dump(export_dump(relu_chain().build(), section_title="AFTER FUSION"))
    assert text.startswith("AFTER FUSION\nop0: SchedulerNode(ComputedBuffer)\n")
    assert parse_dump(text).last.title == "AFTER FUSION"


def test_an_ungrouped_program_means_the_same_after_the_way_back() -> None:
    program = back(relu_chain().build())
    assert differing_results(program, import_program(parse_dump(text_of(program))).program) == []


def test_values_are_named_as_fx_names_them() -> None:
    names = FxNames()
    assert [names.fresh("add") for _ in range(3)] == ["add", "add_1", "add_2"]
    assert [names.fresh("abs") for _ in range(2)] == ["abs_1", "abs_2"]
    assert [names.fresh("and_") for _ in range(2)] == ["and_", "and__1"]
