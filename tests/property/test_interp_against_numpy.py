"""The vectorised reference gives what plain loops over points give, for any small program."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from point_by_point import Runner

from treadle.index import Domain, evaluate, size, substitute
from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import run
from treadle.ir.interp.compare import random_inputs, small_sizes
from treadle.ir.interp.dtypes import Array
from treadle.ir.program import Extern, Loop, Program
from treadle.ir.spec import violations
from treadle.ir.text import parse_program, show_program
from treadle.ir.types import DType
from treadle.testing.strategies import domains, index_expressions, programs

# Relative to the largest value: functions and sums may differ in the last place, and a chain of
# operations carries that on.
TOLERANCE = {DType.F64: 1e-9, DType.F32: 1e-4, DType.BF16: 0.1}
N = size("n", 1, 6)


def assert_close(mine: Array, theirs: Array, dtype: DType) -> None:
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= TOLERANCE.get(dtype, 0.0) * scale
    assert (near | (mine == theirs) | (np.isnan(a) & np.isnan(b))).all(), f"{mine}\n{theirs}"


@settings(max_examples=examples(80))
@given(programs(), st.integers(0, 99))
def test_any_program_gives_what_point_by_point_loops_give(program: Program, seed: int) -> None:
    inputs, sizes = random_inputs(program, seed), small_sizes(program)
    kept = {name: array.copy() for name, array in inputs.items()}
    result = run(program, inputs, sizes=sizes)
    with np.errstate(all="ignore"):
        slow = Runner(program, inputs, sizes)
    for name in (*program.outputs, *program.inputs):
        mine = result.read(name)
        theirs = np.array(slow.read(name), dtype=mine.dtype).reshape(mine.shape)
        assert_close(mine, theirs, program.by_name[name].dtype)
    assert all((inputs[name] == kept[name]).all() for name in inputs), "an input was changed"


# ------------------------------------------------- numpy expressions built alongside the body

STEPS: dict[str, tuple[str, Callable[..., Array]]] = {
    "add": ("add", np.add),
    "sub": ("sub", np.subtract),
    "mul": ("mul", np.multiply),
    "max": ("maximum", np.maximum),
    "min": ("minimum", np.minimum),
    "atan2": ("atan2", np.arctan2),
}
SHAPES = [(3, 4), (1, 4), (3, 1), (4,), (1,), (2, 3, 4)]


@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.lists(st.sampled_from(SHAPES), min_size=5, max_size=5),
    st.integers(0, 99),
)
def test_broadcast_chains_give_the_numpy_expression(
    steps: list[str], shapes: list[tuple[int, ...]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    arrays = {f"x{k}": rng.normal(size=s) for k, s in enumerate(shapes[: len(steps) + 1])}
    full = np.broadcast_shapes(*[a.shape for a in arrays.values()])
    b = ProgramBuilder("chain")
    given_ = [b.input(n, "f64", a.shape) for n, a in arrays.items()]
    y = b.output("y", "f64", full)
    expected, *others = arrays.values()
    with b.loop("it", full) as k:
        loaded = []
        for buffer, array in zip(given_, arrays.values(), strict=True):
            at = k.vars[len(full) - array.ndim :]
            point = [0 if n == 1 else v for v, n in zip(at, array.shape, strict=True)]
            loaded.append(k.load(buffer, *point))
        value, *rest = loaded
        for step, operand, array in zip(steps, rest, others, strict=True):
            ours, theirs = STEPS[step]
            value, expected = k.op(ours, value, operand), theirs(expected, array)
        k.store(y, k.vars, value)
    (mine,) = run(b.build(), arrays).outputs
    assert (mine == np.broadcast_to(expected, full)).all()


@given(st.data())
def test_index_expressions_as_values_give_plain_evaluation(data: st.DataObject) -> None:
    domain = data.draw(domains(min_loops=1, max_extent=4))
    e = data.draw(index_expressions(domain, sizes=[N]))
    b = ProgramBuilder("index")
    n = b.size("n", 1, 6)
    y = b.output("y", "i64", domain.extents)
    with b.loop("it", domain.extents) as k:
        renamed = dict(zip(domain.vars, k.vars, strict=True))
        k.store(y, k.vars, k.index(substitute(e, renamed)))
    (mine,) = run(b.build(), {}, sizes={"n": 5}).outputs
    for point in domain.points():
        assert mine[tuple(point.values())] == evaluate(e, {**point, n: 5})


# ------------------------------------------------------------------------------ the strategies


@given(programs())
def test_programs_are_legal_and_survive_printing(program: Program) -> None:
    assert violations(program) == []
    assert parse_program(show_program(program)) == program


def test_programs_contain_every_kind_of_thing() -> None:
    seen: set[str] = set()

    @settings(max_examples=300, database=None)
    @given(programs())
    def collect(program: Program) -> None:
        for op in program.leaves:
            seen.add(type(op).__name__)
            if isinstance(op, Loop):
                ops = [at.stmt.op for at in op.body.walk()]
                seen.update({"reduction"} if op.body.has_reduction else {"pointwise"})
                seen.update(["mixed"] if "reduce" in ops and "sub" in ops else [])
                touched = {name for name, _, _ in op.body.loads()}
                seen.update(["in place" for n, _, _, _ in op.body.stores() if n in touched])
        seen.update(["view" for x in program.buffers if x.view_of is not None])
        seen.update(["run-time size" for _ in program.sizes])
        seen.update(["several"] if len(program.ops) > 2 else [])

    collect()
    wanted = {"Loop", Extern.__name__, "reduction", "pointwise", "mixed", "in place", "view"}
    assert wanted | {"run-time size", "several"} <= seen


@given(domains(max_loops=3, max_extent=3, sizes=[N]))
def test_domains_are_small(domain: Domain) -> None:
    assert len(domain) <= 3
    assert all(n.value is None or 1 <= n.value <= 3 for n in domain.extents)


@given(st.data())
def test_index_expressions_can_be_evaluated_everywhere(data: st.DataObject) -> None:
    domain = data.draw(domains(max_extent=3))
    e = data.draw(index_expressions(domain))
    assert e.free <= set(domain.vars)
    for values in product(*[range(n.value or 0) for n in domain.extents]):
        assert isinstance(evaluate(e, dict(zip(domain.vars, values, strict=True))), int)
