"""Element types, layouts, the table of operations."""

from __future__ import annotations

import pytest

from treadle.index import const, size
from treadle.ir.body import Stmt
from treadle.ir.effects import EFFECTS, effects
from treadle.ir.ops import OPS, POINTWISE, REDUCTIONS, Family
from treadle.ir.program import GROUP_KINDS, LEAF_KINDS
from treadle.ir.types import Buffer, DType, Layout, dtype, promote
from treadle.ir.typing import ACCEPTS, OWN_RESULTS, RESULTS


@pytest.mark.parametrize(
    "a, b, result",
    [
        ("f32", "f64", "f64"),
        ("f16", "bf16", "f32"),
        ("i64", "f16", "f16"),
        ("bool", "i8", "i8"),
        ("u8", "i8", "i16"),
        ("u8", "i32", "i32"),
        ("u64", "i8", "i64"),
        ("f8e4m3fn", "f8e5m2", "f32"),
        ("f8e4m3fn", "bf16", "bf16"),
        ("bool", "bool", "bool"),
    ],
)
def test_promotion_is_symmetric_and_as_stated(a: str, b: str, result: str) -> None:
    assert promote(dtype(a), dtype(b)) is dtype(result)
    assert promote(dtype(b), dtype(a)) is dtype(result)


def test_types_are_found_by_both_names() -> None:
    assert dtype("torch.float8_e4m3fn") is dtype("f8e4m3fn") is DType.F8E4M3
    assert DType.BF16.itemsize == 2
    assert DType.BF16.is_low_precision
    assert not DType.F32.is_low_precision
    with pytest.raises(ValueError, match="unknown element type 'f31'; known are bool, i8"):
        dtype("f31")


def test_layouts_know_their_span() -> None:
    assert Layout.contiguous([3, 4]).strides == (const(4), const(1))
    assert Layout.contiguous([3, 4]).span.value == 12
    assert Layout((const(3),), (const(5),), const(2)).span.value == 13
    assert Layout.contiguous([0, 4]).span.value == 0
    assert Layout.contiguous([]).span.value == 1
    assert Layout.contiguous([3, 0, 4]).strides == (const(4), const(4), const(1))
    n = size("n", 0, 8)
    assert str(Layout.contiguous([2, n]).strides[0]) == "max(1, n)"
    assert str(Layout((n, const(4)), (const(8), const(1))).span) == "max(0, 8*n - 4)"
    some = size("m", 1, 8)
    assert str(Layout((some, const(4)), (const(8), const(1))).span) == "8*m - 4"
    with pytest.raises(ValueError, match="1 sizes but 2 strides"):
        Layout((const(3),), (const(1), const(1)))
    with pytest.raises(ValueError, match="negative size -1"):
        Layout.contiguous([-1])


def test_bytes_use_hints_for_run_time_sizes() -> None:
    n = size("n", 1, 100, hint=10)
    assert Buffer("b", DType.F32, Layout.contiguous([n, 4])).storage_bytes == 160
    gaps = Layout((const(4),), (const(10),))
    assert Buffer("b", DType.BF16, gaps).storage_bytes == 62
    assert Buffer("b", DType.BF16, gaps).tensor_bytes == 8


def test_a_buffer_cannot_be_a_view_of_itself() -> None:
    with pytest.raises(ValueError, match="is a view of itself"):
        Buffer("b", DType.F32, Layout.contiguous([1]), "cpu", "b")


def test_the_table_is_large_enough_and_every_row_is_complete() -> None:
    assert len(POINTWISE) >= 110
    assert len(REDUCTIONS) >= 12
    for op in OPS.values():
        assert op.doc, op.name
        assert op.accepts in ACCEPTS, op.name
        assert op.result in RESULTS or not op.produces, op.name
        if op.result == "own" and op.produces:
            assert op.name in OWN_RESULTS, op.name
        assert (op.family is Family.POINTWISE) == (op.name in POINTWISE)


@pytest.mark.parametrize("op", OPS)
def test_attributes_are_read_and_changed_by_their_names(op: str) -> None:
    names = OPS[op].attrs
    stmt = Stmt(op, (), tuple([const(k) for k in range(len(names))]))
    for k, name in enumerate(names):
        assert stmt.attr(name) is const(k)
        changed = stmt.with_attr(name, "new")
        assert changed.attr(name) == "new"
        assert changed.attrs == (*stmt.attrs[:k], "new", *stmt.attrs[k + 1 :])
    with pytest.raises(KeyError):
        stmt.attr("no_such_attribute")


@pytest.mark.parametrize("op", [op for op in OPS if OPS[op].family is Family.MEMORY])
def test_what_touches_memory_says_what_and_where(op: str) -> None:
    stmt = Stmt(op, (), tuple([const(k) for k in range(len(OPS[op].attrs))]))
    assert stmt.buffer is stmt.attr("buffer")
    if op != "bucketize":
        assert stmt.address is stmt.attr("index")
        assert stmt.mode == (stmt.attr("mode") if op == "store" else "plain")


def test_effects_are_known_for_every_kind() -> None:
    assert set(EFFECTS) == {*LEAF_KINDS, *GROUP_KINDS}


def test_a_group_shows_only_what_crosses_its_border() -> None:
    from treadle.ir.text import parse_program

    program = parse_program("""treadle 1
program p
inputs x
outputs y

buffer x : f32[4] on cpu
buffer t : f32[4] on cpu
buffer y : f32[4] on cpu

fused f on cpu {
  loop a on cpu for i in 4 {
    %0 = load x[i]
    store t[i] = %0
  }
  loop b on cpu for i in 4 {
    %0 = load t[i]
    store y[i] = %0 mode atomic_add
  }
}
""")
    assert effects(program.ops[0]) == (("x",), ("t",), ("y",))
    assert effects(program.ops[0]).touched == ("x", "t", "y")
