"""The small compiler in docs/from_scratch.py is right: on its example and on random programs."""

from __future__ import annotations

import importlib.util
import random
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FILE = Path(__file__).resolve().parents[3] / "docs" / "from_scratch.py"
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("gcc", "cc", "clang"))), reason="no C compiler"
)


@pytest.fixture(scope="module")
def small() -> ModuleType:
    spec = importlib.util.spec_from_file_location("from_scratch", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["from_scratch"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@needs_compiler
def test_the_file_runs_and_agrees_with_its_interpreter(
    small: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert small.main() == 0
    told = capsys.readouterr().out
    assert "9 loops became 2 kernels" in told
    assert "ACROSS ROWS" in told
    assert "CYCLE" in told


def test_it_is_small_enough_to_be_read_at_once() -> None:
    assert len(FILE.read_text().splitlines()) <= 540


def random_program(small: ModuleType, seed: int) -> object:
    """Loops over what is there already: elements, rows, columns, sums; some update in place."""
    rng, n = random.Random(seed), 8  # square, so that a column vector can be read as a row
    shapes = {"x": ("i", "j"), "y": ("i", "j")}
    loops = []
    for k in range(rng.randint(2, 9)):

        def some() -> object:
            name = rng.choice(sorted(shapes))
            index = shapes[name]
            if len(index) == 1:
                index = rng.choice([("i",), ("j",)])
            return small.load(name, *index)

        kind = rng.choice(["map", "map", "sum", "max", "update"])
        value = some() * rng.choice([0.5, 1.5]) + some()
        if kind == "update":
            old = small.load("y", "i", "j")
            loops.append(small.Loop(f"l{k}", "y", ("i", "j"), old * 0.5 + value))
        elif kind == "map":
            loops.append(small.Loop(f"l{k}", f"t{k}", ("i", "j"), value))
            shapes[f"t{k}"] = ("i", "j")
        else:
            loops.append(small.Loop(f"l{k}", f"t{k}", ("i",), value, kind))
            shapes[f"t{k}"] = ("i",)
    return small.Program(n, n, shapes, tuple(loops), ("x", "y"), (loops[-1].target, "y"))


@needs_compiler
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_are_compiled_to_what_they_mean(small: ModuleType, seed: int) -> None:
    program = random_program(small, seed)
    compiled = small.compile_program(program)
    rng = np.random.default_rng(seed)
    inputs = {name: rng.standard_normal((8, 8)) for name in ("x", "y")}
    wanted, found = small.interpret(program, inputs), compiled(inputs)
    for name in program.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-3, atol=1e-3)
    place = {k: n for n, kernel in enumerate(compiled.kernels) for k in kernel.loops}
    assert all(place[a] <= place[b] for a, b in small.dependences(program.loops))
    assert compiled.arena_bytes >= small.lower_bound(compiled.blocks)
