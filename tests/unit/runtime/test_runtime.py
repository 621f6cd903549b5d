from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from treadle.codegen.c.unit import FLAGS
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import RunError
from treadle.ir.program import Program
from treadle.memory.problem import Place, Plan
from treadle.runtime import NumpyTensor, compile_program, plan_layout, stacked_layout
from treadle.runtime.arena import ALIGNMENT, aligned_bytes, as_placement
from treadle.runtime.kernels import Kernels


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def relay(steps: int = 3) -> Program:
    """x -> t0 -> t1 -> ... -> y, each one more; x is changed last."""
    b = ProgramBuilder("relay")
    x, y = b.input("x", "f32", [16]), b.output("y", "f32", [16])
    chain = [x, *[b.buffer(f"t{k}", "f32", [16]) for k in range(steps)], y]
    for n, (source, target) in enumerate(itertools.pairwise(chain)):
        with b.loop(f"step{n}", [16]) as k:
            k.store(target, k.vars[0], k.load(source, k.vars[0]) + 1.0)
    with b.loop("change", [16]) as k:
        k.store(x, k.vars[0], k.load(x, k.vars[0]) * 2.0)
    return b.build()


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(16, dtype=np.float32)


def test_outputs_are_found_by_name_and_by_position(x: np.ndarray) -> None:
    result = compile_program(relay(), optimise=0).run({"x": x})
    assert list(result) == ["y"]
    np.testing.assert_array_equal(result["y"], x + 4)
    assert result.outputs[0] is result["y"]
    assert result.sizes == {}


def test_inputs_are_copied_and_their_end_can_be_read(x: np.ndarray) -> None:
    before = x.copy()
    result = compile_program(relay(), optimise=0).run({"x": x})
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(result.read("x"), 2 * before)


def test_run_on_works_in_the_memory_of_the_caller(x: np.ndarray) -> None:
    before = x.copy()
    compile_program(relay(), optimise=0).run_on({"x": NumpyTensor(x)})
    np.testing.assert_array_equal(x, 2 * before)


def test_a_tensor_that_lies_differently_is_copied_in_and_back() -> None:
    wide = np.arange(32, dtype=np.float32)
    compile_program(relay(), optimise=0).run_on({"x": NumpyTensor(wide[::2])})
    np.testing.assert_array_equal(wide[::2], 2 * np.arange(0, 32, 2))
    np.testing.assert_array_equal(wide[1::2], np.arange(1, 32, 2))


class Foreign:
    """A tensor of another library: an address, a shape, strides."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.data_ptr, self.nbytes = array.ctypes.data, array.nbytes
        self.shape = array.shape
        self.strides = tuple(s // array.itemsize for s in array.strides)


def test_tensors_of_other_libraries_are_reached_through_their_address(x: np.ndarray) -> None:
    before = x.copy()
    result = compile_program(relay(), optimise=0).run_on({"x": Foreign(x)})
    np.testing.assert_array_equal(x, 2 * before)
    np.testing.assert_array_equal(result["y"], before + 4)


def test_a_plan_decides_where_storages_lie(x: np.ndarray) -> None:
    compiled = compile_program(relay(), plan={"t0": 0, "t1": 64, "t2": 0}, optimise=0)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], x + 4)
    assert compiled.arena_bytes == 128


def test_a_plan_of_the_memory_planner_is_understood(x: np.ndarray) -> None:
    places = {"t0": Place("arena", 64), "t1": Place("y", 0), "t2": Place("arena", 0)}
    compiled = compile_program(relay(), plan=Plan(places, height=128), optimise=0)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], x + 4)
    assert compiled.arena_bytes == 128


def test_without_a_plan_every_storage_has_its_own_place(x: np.ndarray) -> None:
    compiled = compile_program(relay(), optimise=0)
    compiled.run({"x": x})
    assert compiled.arena_bytes == 3 * 64


def test_a_storage_may_lie_in_an_output_that_is_not_born_yet(x: np.ndarray) -> None:
    plan = {"t0": Place("y", 0), "t1": Place("arena", 0), "t2": Place("arena", 64)}
    compiled = compile_program(relay(), plan=plan, optimise=0)
    for poison in (False, True):
        np.testing.assert_array_equal(compiled.run({"x": x}, poison=poison)["y"], x + 4)


def test_a_plan_for_other_sizes_is_not_used() -> None:
    b = ProgramBuilder("sizes")
    n = b.size("n", 1, 64, hint=4)
    x, t, y = b.input("x", "f32", [n]), b.buffer("t", "f32", [n]), b.output("y", "f32", [n])
    u = b.buffer("u", "f32", [n])
    for source, target in ((x, t), (t, u), (u, y)):
        with b.loop(None, [n]) as k:
            k.store(target, k.vars[0], k.load(source, k.vars[0]) + 1.0)
    compiled = compile_program(b.build(), plan={"t": 0, "u": 16}, optimise=0)
    for count in (4, 64):
        found = compiled.run({"x": np.zeros(count, np.float32)})["y"]
        np.testing.assert_array_equal(found, np.full(count, 3.0, np.float32))
    by_size = compile_program(b.build(), plan=lambda sizes: {"t": 0, "u": 4 * sizes["n"]})
    found = by_size.run({"x": np.zeros(64, np.float32)})["y"]
    np.testing.assert_array_equal(found, np.full(64, 3.0, np.float32))


def test_places_left_out_of_a_plan_come_behind_it() -> None:
    layout = plan_layout(as_placement({"a": 0, "b": 100}), {"a": 10, "b": 10, "c": 5})
    assert layout.places["c"] == Place("arena", 2 * ALIGNMENT)
    assert layout.total == 3 * ALIGNMENT
    assert stacked_layout({}).total == 0


def test_memory_is_aligned() -> None:
    assert aligned_bytes(100).ctypes.data % ALIGNMENT == 0


def test_without_a_compiler_the_interpreter_runs_the_program(x: np.ndarray) -> None:
    with pytest.warns(UserWarning, match="RUN011.*TOOL001"):
        compiled = compile_program(relay(), options=Options(cc="no-such-compiler"))
    assert not compiled.is_compiled
    before = x.copy()
    result = compiled.run({"x": x})
    np.testing.assert_array_equal(result["y"], before + 4)
    np.testing.assert_array_equal(result.read("x"), 2 * before)
    compiled.run_on({"x": NumpyTensor(x)})
    np.testing.assert_array_equal(x, 2 * before)


def test_a_kernel_without_scratch_memory_says_so() -> None:
    class Library:
        def __getitem__(self, name: str) -> object:
            prototype = ctypes.CFUNCTYPE(
                ctypes.c_int, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2
            )

            def entry(buffers: int, sizes: int, error: int, first: int, last: int) -> int:
                record = ctypes.cast(error, ctypes.POINTER(ctypes.c_int64))
                record[0], record[1] = -1, 12345
                return 1

            return prototype(entry)

    with pytest.raises(RunError, match="12345 elements") as found:
        Kernels(Library(), ()).run([], [], 0, 1)
    assert found.value.code == "RUN012"


def test_wrong_inputs_are_refused_as_by_the_interpreter(x: np.ndarray) -> None:
    compiled = compile_program(relay(), optimise=0)
    with pytest.raises(RunError, match="RUN001"):
        compiled.run({"x": x.astype(np.float64)})
    with pytest.raises(RunError, match="RUN001"):
        compiled.run({})


def test_contraction_is_off_and_no_fast_arithmetic_is_asked_for() -> None:
    assert "-ffp-contract=off" in FLAGS
    assert not any("fast" in flag for flag in FLAGS)


def test_a_kernel_fails_in_words_without_what_the_interpreter_needs() -> None:
    lines = [
        "import sys",
        "sys.modules.update(scipy=None, ml_dtypes=None)",
        "from treadle.core.errors import TreadleError",
        "from treadle.runtime.kernels import Kernels",
        "kernels = Kernels.__new__(Kernels)",
        "try:",
        "    kernels.fail([0, 5])",
        "except TreadleError as e:",
        "    print(e.code, e.message)",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.stdout.strip() == "RUN012 no memory for 5 elements of scratch", done.stderr
