"""The builder refuses what would silently be another program."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import run
from treadle.ir.spec import verify


def test_comparisons_build_operations() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [4]), b.output("y", "bool", [4])
    with b.loop("a", [4]) as k:
        v = k.load(x, *k.vars)
        k.store(y, k.vars, (v == 1.0) | (v != v))
    given = np.array([1, 2, np.nan, 1], np.float32)
    assert run(verify(b.build()), {"x": given}).outputs[0].tolist() == [True, False, True, True]


def test_python_operators_build_operations() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "i64", [3]), b.output("y", "i64", [3])
    with b.loop("a", [3]) as k:
        v = k.load(x, *k.vars)
        k.store(y, k.vars, abs(v) ** 2 % 7 // 2 + (~v & 1) * 100 + ((v ^ 3) - v))
    given = np.array([-3, 4, 5])
    want = np.abs(given) ** 2 % 7 // 2 + (~given & 1) * 100 + ((given ^ 3) - given)
    assert (run(verify(b.build()), {"x": given}).outputs[0] == want).all()


def test_a_value_has_no_truth_while_it_is_built() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [4])
    with b.loop("a", [4]) as k:
        v = k.load(x, *k.vars)
        with pytest.raises(TypeError, match=r"choose with k\.where"):
            bool(v > 0)


def test_a_value_of_another_body_is_refused() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
    with b.loop("a", [4]) as k:
        v = k.load(x, *k.vars)
    with b.loop("b", [4]) as k, pytest.raises(ValueError, match="%0 belongs to another body"):
        k.store(y, k.vars, v)


@pytest.mark.parametrize("key", ["origins", "after"])
def test_a_text_is_not_taken_for_a_list_of_names(key: str) -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [4])
    with pytest.raises(TypeError, match=f"{key} takes a list of names"):
        b.nop(x, **{key: "model.py:3"})


def test_indices_and_foreign_objects_are_refused_with_a_hint() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [4])
    with b.loop("a", [4]) as k:
        (i,) = k.vars
        v = k.load(x, i)
        with pytest.raises(TypeError, match=r"make it a value with k.index\(i0\)"):
            v + i
        with pytest.raises(TypeError, match="not dict"):
            v + {}
        with pytest.raises(AttributeError, match=r"did you mean .*rsqrt"):
            k.rsqr(v)
        with pytest.raises(TypeError, match="an index expression or a whole number, not 'i'"):
            k.load_at(x, "i")


def test_numbers_and_types_of_other_libraries_are_understood() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", np.dtype("float32"), [np.int64(4)])
    y = b.output("y", "float32", [4])
    with b.loop("a", [np.int32(4)]) as k:
        k.store(y, k.vars[0], k.load(x, *k.vars))
    assert verify(b.build()).by_name["x"].storage_bytes == 16


def test_a_size_is_declared_once() -> None:
    b = ProgramBuilder("p")
    b.size("n", 1, 8)
    with pytest.raises(ValueError, match="size n is declared twice"):
        b.size("n", 1, 9)
