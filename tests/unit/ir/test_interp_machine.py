"""Whole programs: inputs, storages and views, sizes, calls, tuples, collectives, groups."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import CallContext, RunError, from_arrays, run
from treadle.ir.interp.dtypes import NUMPY_TYPES, POISON_BYTE
from treadle.ir.interp.externs import base_name
from treadle.ir.program import Call, Foreach, Fused, Group, Grouped, MixOrder
from treadle.ir.types import Buffer, BufferKind, DType, Layout

F32 = np.float32


def add_one(b: ProgramBuilder, source: Buffer, target: Buffer, name: str | None = None) -> None:
    with b.loop(name, source.layout.sizes) as k:
        k.store(target, k.vars, k.load(source, *k.vars) + 1)


# ------------------------------------------------------------------------ inputs and outputs


def test_inputs_are_copied_and_outputs_are_copies() -> None:
    b = ProgramBuilder("copies")
    x = b.input("x", "f32", [3])
    b.returns(x)
    add_one(b, x, x)
    given = np.zeros(3, F32)
    result = run(b.build(), {"x": given})
    assert given.tolist() == [0, 0, 0]
    result.outputs[0][:] = 9
    assert result.read("x").tolist() == [1, 1, 1]


def test_an_input_lies_in_its_storage_as_its_layout_says() -> None:
    b = ProgramBuilder("layout")
    x = b.input("x", "f32", [2, 3], strides=[1, 4], offset=2)
    y = b.output("y", "f32", [12])
    with b.loop("raw", [12]) as k:
        k.store(y, k.vars, k.load_at(x, k.vars[0], unproven=True))
    values = np.arange(6, dtype=F32).reshape(2, 3)
    result = run(b.build(), {"x": values})
    raw = result.outputs[0]
    assert [raw[2 + i + 4 * j] for i in range(2) for j in range(3)] == values.ravel().tolist()
    assert np.isnan(raw[[0, 1, 4, 5, 8, 9]]).all()
    assert (result.read("x") == values).all()


def test_numpy_views_and_scalars_are_accepted_as_inputs() -> None:
    b = ProgramBuilder("views")
    x, s = b.input("x", "f32", [2, 3]), b.input("s", "i64", [])
    y = b.output("y", "f32", [2, 3])
    with b.loop("it", [2, 3]) as k:
        k.store(y, k.vars, k.load(x, *k.vars) * k.load(s).to("f32"))
    transposed = np.arange(6, dtype=F32).reshape(3, 2).T
    assert (run(b.build(), {"x": transposed, "s": np.int64(2)}).outputs[0] == 2 * transposed).all()


@pytest.mark.parametrize("poison", [True, False])
def test_fresh_memory_shows(poison: bool) -> None:
    b = ProgramBuilder("fresh")
    ys = [b.output(d.text, d, [2]) for d in DType]
    b.nop(*ys)
    for y, found in zip(ys, run(b.build(), {}, poison=poison).outputs, strict=True):
        if not poison:
            assert (found.astype(F32) == 0).all()
        elif y.dtype.is_float:
            assert np.isnan(found.astype(F32)).all()
        elif y.dtype is DType.BOOL:
            assert found.all()
        else:
            assert found.tobytes() == bytes([POISON_BYTE]) * found.nbytes


# -------------------------------------------------------------------------------------- views


def test_a_view_and_its_root_are_the_same_memory() -> None:
    b = ProgramBuilder("view")
    x = b.input("x", "f32", [3, 4])
    column = b.view("column", x, [3], [4], 1)
    mirrored = b.view("mirrored", x, [4, 3], [1, 4])
    y = b.output("y", "f32", [4, 3])
    add_one(b, column, column)
    with b.loop("copy", [4, 3]) as k:
        k.store(y, k.vars, k.load(mirrored, *k.vars))
    values = np.zeros((3, 4), F32)
    result = run(b.build(), {"x": values})
    values[:, 1] = 1
    assert (result.read("x") == values).all()
    assert (result.outputs[0] == values.T).all()
    assert result.read("column").tolist() == [1, 1, 1]


@pytest.mark.parametrize("element, count", [("i32", 2), ("u8", 8), ("f64", 1), ("bf16", 4)])
def test_a_view_of_another_type_reads_the_bytes(element: str, count: int) -> None:
    b = ProgramBuilder("bytes")
    b.input("x", "f32", [2])
    dtype = next(d for d in DType if d.text == element)
    seen = b._declare(Buffer("seen", dtype, Layout.contiguous([count]), view_of="x"))
    y = b.output("y", dtype, [count])
    with b.loop("copy", [count]) as k:
        k.store(y, k.vars, k.load(seen, *k.vars))
    values = np.array([1.5, -2.25], F32)
    found = run(b.build(), {"x": values}).outputs[0]
    assert found.tobytes() == values.view(NUMPY_TYPES[dtype]).tobytes()


def test_bytes_seen_as_bools_are_true_unless_zero() -> None:
    b = ProgramBuilder("bools")
    x = b.input("x", "u8", [3])
    seen = b._declare(Buffer("seen", DType.BOOL, Layout.contiguous([3]), view_of=x.name))
    y = b.output("y", "i32", [3])
    with b.loop("it", [3]) as k:
        k.store(y, k.vars, k.load(seen, *k.vars).to("i32"))
    found = run(b.build(), {"x": np.array([0, 1, 200], np.uint8)}).outputs[0]
    assert found.tolist() == [0, 1, 1]


def test_a_write_through_a_view_of_another_type_changes_the_root() -> None:
    b = ProgramBuilder("write")
    x = b.input("x", "f32", [2])
    bits = b._declare(Buffer("bits", DType.I32, Layout.contiguous([2]), view_of=x.name))
    with b.loop("clear_sign", [2]) as k:
        k.store(bits, k.vars, k.load(bits, *k.vars) & 0x7FFFFFFF)
    assert run(b.build(), {"x": np.array([-1.0, 2.0], F32)}).read("x").tolist() == [1, 2]


def test_a_view_that_leaves_its_storage_is_refused_when_it_is_used() -> None:
    b = ProgramBuilder("outside")
    x = b.input("x", "f32", [3])
    b.view("v", x, [4])
    with pytest.raises(RunError, match="RUN003: buffer 'v' reaches storage index 3"):
        run(b.build(), {"x": np.zeros(3, F32)}).read("v")


# -------------------------------------------------------------------------------------- sizes


def test_sizes_are_read_off_inputs_or_given() -> None:
    b = ProgramBuilder("sizes")
    n, m = b.size("n"), b.size("m")
    x = b.input("x", "f32", [n, 2])
    y = b.output("y", "f32", [n * m])
    with b.loop("spread", [n * m]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load(x, i // m, 1))
    found = run(b.build(), {"x": np.array([[0, 1], [0, 2]], F32)}, sizes={"m": 3}).outputs[0]
    assert found.tolist() == [1, 1, 1, 2, 2, 2]


def test_a_size_may_be_zero_where_the_program_allows_it() -> None:
    b = ProgramBuilder("zero")
    n = b.size("n", lo=0)
    x, y = b.input("x", "f32", [n, 3]), b.output("y", "f32", [3, n])
    with b.loop("turn", [n, 3]) as k:
        i, j = k.vars
        k.store(y, (j, i), k.load(x, i, j))
    assert run(b.build(), {"x": np.zeros((0, 3), F32)}).outputs[0].shape == (3, 0)


# -------------------------------------------------------------------------------------- calls


def unary_call(kind: str, target: str, **rest: Any) -> tuple[ProgramBuilder, Buffer]:
    b = ProgramBuilder("call")
    x, y = b.input("x", "f32", [2, 2]), b.output("y", "f32", [2, 2])
    getattr(b, kind)(target, [x], writes=[y], name="call", **rest)
    return b, y


@pytest.mark.parametrize("kind", ["extern", "template", "user_kernel", "collective"])
def test_every_kind_of_call_runs_what_it_is_given(kind: str) -> None:
    b, _ = unary_call(kind, "mylib.twice")
    inputs = {"x": np.ones((2, 2), F32)}
    found = run(b.build(), inputs, externs={"mylib.twice": from_arrays(lambda x: 2 * x)})
    assert (found.outputs[0] == 2).all()


def test_an_implementation_sees_arrays_values_and_names() -> None:
    b = ProgramBuilder("call")
    x, y = b.input("x", "f32", [2], strides=[3]), b.output("y", "f32", [2])
    b.extern("mylib.f", [x, 3, [x, None], "text"], [y], attrs={"scale": 0.5}, name="call")
    seen: list[Any] = []

    def implementation(ctx: CallContext, op: Call) -> None:
        seen.extend([ctx.args, ctx.attrs, ctx.shape_of("x"), dict(ctx.sizes), op.name])
        ctx.args[0][:] = 7  # a copy: the program does not see it
        ctx.write("y", ctx.read("x").astype(np.float64) + 1)

    result = run(b.build(), {"x": np.array([1, 2], F32)}, externs={"mylib.f": implementation})
    args, attrs, shape, sizes, name = seen
    assert args[0].tolist() == args[2][0].tolist() == [1, 2]
    assert (args[1], args[2][1], args[3]) == (3, None, "text")
    assert (attrs, shape, sizes, name) == ({"scale": 0.5}, (2,), {}, "call")
    assert result.outputs[0].tolist() == [2, 3]
    assert result.outputs[0].dtype == F32


def test_what_the_caller_gives_comes_before_the_built_in_table() -> None:
    b = ProgramBuilder("mine")
    x, y = b.input("x", "f32", [2, 2]), b.output("y", "f32", [2, 2])
    b.extern("aten.mm.default", [x, x], [y])
    for name in ("aten.mm.default", "mm"):
        externs = {name: from_arrays(lambda a, b: a - b)}
        assert (run(b.build(), {"x": np.ones((2, 2), F32)}, externs=externs).outputs[0] == 0).all()


@pytest.mark.parametrize(
    "target, name",
    [
        ("mm", "mm"),
        ("aten.mm", "mm"),
        ("aten.mm.default", "mm"),
        ("aten::mm", "mm"),
        ("extern_kernels.mm", "mm"),
        ("torch.ops.aten.mm.out", "mm"),
        ("torch.ops._c10d_functional.all_reduce_.default", "all_reduce_"),
        ("mylib.mm", "mylib.mm"),
        ("aten.mm.mine", "aten.mm.mine"),
    ],
)
def test_the_base_name_of_a_target(target: str, name: str) -> None:
    assert base_name(target) == name


@pytest.mark.parametrize(
    "target, wanted",
    [
        ("aten.bmm", lambda a, c, d: a @ c),
        ("extern_kernels.baddbmm", lambda a, c, d: d + a @ c),
    ],
)
def test_batched_products(target: str, wanted: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-3, 4, (2, 3, 3)).astype(F32) for n in "acd"}
    b = ProgramBuilder("batched")
    a, c, d = (b.input(n, "f32", [2, 3, 3]) for n in "acd")
    y = b.output("y", "f32", [2, 3, 3])
    b.extern(target, [a, c] if target == "aten.bmm" else [d, a, c], [y])
    assert (run(b.build(), arrays).outputs[0] == wanted(*arrays.values())).all()


def test_beta_zero_does_not_look_at_the_bias() -> None:
    b = ProgramBuilder("bias")
    a, bias, y = (
        b.input("a", "f32", [2, 2]),
        b.input("bias", "f32", [2]),
        b.output("y", "f32", [2, 2]),
    )
    b.extern("aten.addmm", [bias, a, a], [y], attrs={"beta": 0})
    inputs = {"a": np.eye(2, dtype=F32), "bias": np.full(2, np.nan, F32)}
    assert (run(b.build(), inputs).outputs[0] == np.eye(2)).all()


def test_copy_converts_broadcasts_and_may_work_in_place() -> None:
    b = ProgramBuilder("copy")
    x, t, y = b.input("x", "f32", [2]), b.input("t", "i32", [3, 2]), b.output("y", "f64", [2])
    b.extern("aten.copy_", [t, x], [], mutates=[t])
    b.extern("aten.copy", [x], [y])
    result = run(b.build(), {"x": np.array([1.9, -1.9], F32), "t": np.zeros((3, 2), np.int32)})
    assert result.read("t").tolist() == [[1, -1]] * 3
    assert result.outputs[0].dtype == np.float64


def test_a_call_may_fill_a_tuple_and_its_items_are_taken() -> None:
    b = ProgramBuilder("tuple")
    x = b.input("x", "f32", [2, 3])
    pair = b.token("pair", BufferKind.TUPLE)
    low, high = b.output("low", "f32", [2]), b.output("high", "f32", [2])
    b.extern("mylib.minmax", [x], [pair])
    b.take(high, pair, 1)
    b.take(low, pair, 0)
    externs = {"mylib.minmax": from_arrays(lambda x: (x.min(1), x.max(1)))}
    found = run(b.build(), {"x": np.arange(6, dtype=F32).reshape(2, 3)}, externs=externs).outputs
    assert [v.tolist() for v in found] == [[0, 3], [2, 5]]


def test_a_tuple_can_be_an_argument_of_the_next_call() -> None:
    b = ProgramBuilder("tuple")
    x, y = b.input("x", "f32", [2]), b.output("y", "f32", [2])
    pair = b.token("pair", BufferKind.TUPLE)
    b.extern("mylib.split", [x], [pair])
    b.extern("mylib.join", [pair], [y])
    externs = {
        "mylib.split": from_arrays(lambda x: (x + 1, x + 2)),
        "mylib.join": from_arrays(lambda pair: pair[0] * pair[1]),
    }
    assert run(b.build(), {"x": np.zeros(2, F32)}, externs=externs).outputs[0].tolist() == [2, 2]


def test_a_target_may_stand_among_the_arguments() -> None:
    b = ProgramBuilder("out")
    x, y = b.input("x", "f32", [2]), b.output("y", "f32", [2])
    b.extern("mylib.into", [x, y], [y])
    externs = {"mylib.into": from_arrays(lambda x, out: np.where(np.isnan(out), x, -1))}
    assert run(b.build(), {"x": np.ones(2, F32)}, externs=externs).outputs[0].tolist() == [1, 1]


# -------------------------------------------------------------------------------- collectives


@pytest.mark.parametrize(
    "target",
    [
        "_c10d_functional.all_reduce.default",
        "_c10d_functional.all_gather_into_tensor.default",
        "_c10d_functional.reduce_scatter_tensor.default",
        "nccl.broadcast",
    ],
)
def test_with_one_rank_a_collective_gives_back_what_it_got(target: str) -> None:
    b = ProgramBuilder("collective")
    x, y = b.input("x", "f32", [2, 2]), b.output("y", "f32", [4])
    b.collective(target, [x, "sum"], writes=[y], group="0")
    b.wait(y)
    assert run(b.build(), {"x": np.ones((2, 2), F32)}).outputs[0].tolist() == [1] * 4


def test_a_collective_in_place_and_one_on_tuples() -> None:
    b = ProgramBuilder("collective")
    x, y = b.input("x", "f32", [2]), b.output("y", "f32", [2])
    parts = b.token("parts", BufferKind.TUPLE)
    b.collective("_c10d_functional.all_reduce_.default", [x], mutates=[x])
    b.wait(x)
    b.collective("_c10d_functional.all_reduce_coalesced.default", [[x, x]], writes=[parts])
    b.take(y, parts, 1)
    assert run(b.build(), {"x": np.ones(2, F32)}).outputs[0].tolist() == [1, 1]


# ------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("kind", [Fused, MixOrder, Foreach, Grouped])
def test_members_of_a_group_run_in_order(kind: type[Group]) -> None:
    b = ProgramBuilder("group")
    x, y, t = b.input("x", "f32", [2]), b.output("y", "f32", [2]), b.buffer("t", "f32", [2])
    with b.group(kind):
        add_one(b, x, t, "first")
        add_one(b, t, y, "second")
    assert run(b.build(), {"x": np.zeros(2, F32)}).outputs[0].tolist() == [2, 2]


def test_an_allocation_forgets_what_was_there() -> None:
    b = ProgramBuilder("alloc")
    t = b.output("t", "f32", [2])
    x = b.input("x", "f32", [2])
    add_one(b, x, t)
    b.nop(t)
    assert np.isnan(run(b.build(), {"x": np.zeros(2, F32)}).outputs[0]).all()


def test_an_allocated_view_leaves_its_neighbours_alone() -> None:
    b = ProgramBuilder("alloc")
    x = b.input("x", "f32", [4])
    b.nop(b.view("v", x, [2], offset=1))
    found = run(b.build(), {"x": np.ones(4, F32)}).read("x")
    assert np.isnan(found).tolist() == [False, True, True, False]


def test_a_token_orders_but_holds_nothing() -> None:
    b = ProgramBuilder("token")
    x, y = b.input("x", "f32", [2]), b.output("y", "f32", [2])
    token = b.token("done")
    b.extern("mylib.note", [x], [token], has_side_effects=True)
    add_one(b, x, y)
    externs = {"mylib.note": lambda ctx, op: None}
    assert run(b.build(), {"x": np.zeros(2, F32)}, externs=externs).outputs[0].tolist() == [1, 1]
