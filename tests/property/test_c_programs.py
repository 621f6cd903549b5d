"""Random programs give the same numbers compiled as interpreted.

`HYPOTHESIS_PROFILE=explore` runs thousands. The bound is derived: with exact numerics it leaves
room only where sums of f64 are added in another order, and for what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from focused_programs import crowds, relays
from how_many import IS_QUICK, examples
from hypothesis import assume, given, settings
from random_bodies import bodies
from small_operations import MOVES
from small_programs import EXTERNS, inputs_for, size_choices, small_programs

from treadle.analysis.liveness import Liveness, LiveRange
from treadle.index import Symbol
from treadle.ir.effects import effects
from treadle.ir.interp import run
from treadle.ir.interp.compare import random_inputs
from treadle.ir.interp.dtypes import Array
from treadle.ir.program import Loop, Program
from treadle.ir.text import show_program
from treadle.ir.types import BufferKind
from treadle.runtime import Place, compile_program
from treadle.testing.differential import out_of_bounds
from treadle.testing.strategies import programs

# Where a search in rows that are not sorted ends is nobody's promise.
SORTED_MOVES = tuple(m for m in MOVES if m != "bucket")
EXAMPLES = examples(30)
ALL = 1.0  # a program of few elements may well hang on one that cannot be told
OPTIMISE = 0 if IS_QUICK else 2


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def agree(program: Program, sizes: Mapping[Symbol, int], inputs: dict[str, Array]) -> None:
    compiled = compile_program(program, externs=EXTERNS, optimise=OPTIMISE)
    assert compiled.is_compiled
    named = {s.name: n for s, n in sizes.items()}
    found = out_of_bounds(compiled, inputs, sizes=named, undecidable=ALL)
    if found:
        assume(not shows_bits_of_nan(program, inputs, named))
    assert not found, "\n".join([*found, show_program(program)])


def shows_bits_of_nan(program: Program, inputs: dict[str, Array], sizes: dict[str, int]) -> bool:
    """Whether a NaN, whose sign and payload are nobody's promise, may be read as another type."""
    views = [b for b in program.buffers if b.view_of is not None]
    if all(b.dtype is program.by_name[program.storage_of(b.name)].dtype for b in views):
        return False
    result = run(program, inputs, sizes=sizes, externs=EXTERNS)
    tensors = [b for b in program.buffers if b.kind is BufferKind.TENSOR and b.dtype.is_float]
    return any(np.isnan(result.read(b.name).astype(np.float64)).any() for b in tensors)


def reads_what_it_accumulates(program: Program) -> bool:
    """Whether a body loads from where it combines: other points may have been there before."""
    for op in program.leaves:
        if isinstance(op, Loop):
            changed = {program.storage_of(n) for n in effects(op).mutates}
            if changed & {program.storage_of(n) for n in effects(op).reads}:
                return True
    return False


@settings(max_examples=EXAMPLES)
@given(programs())
def test_programs_agree(program: Program) -> None:
    for count in (1, 4) if program.sizes else (0,):
        sizes = dict.fromkeys(program.sizes, count)
        named = {s.name: count for s in program.sizes}
        agree(program, sizes, random_inputs(program, sizes=named))


@settings(max_examples=EXAMPLES)
@given(small_programs(groups=True, moves=SORTED_MOVES))
def test_small_programs_in_groups_agree(program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    for sizes in size_choices(program):
        agree(program, sizes, inputs_for(program, sizes))


@settings(max_examples=EXAMPLES)
@given(bodies())
def test_bodies_agree(program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    (s,) = program.sizes
    agree(program, {s: 3}, random_inputs(program, sizes={"s": 3}))
    agree(program, {s: 0}, random_inputs(program, sizes={"s": 0}))


@settings(max_examples=EXAMPLES)
@given(relays())
def test_programs_that_hand_values_on_agree(program: Program) -> None:
    agree(program, {}, inputs_for(program, {}))


@settings(max_examples=EXAMPLES)
@given(crowds())
def test_programs_that_crowd_one_storage_agree(program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    agree(program, {}, inputs_for(program, {}))


# ------------------------------------------------------------------------------ shared memory


def shared_places(program: Program) -> dict[str, Place]:
    """The tightest places liveness allows, by first fit: blocks are handed over and used again."""
    live = Liveness(program)
    at = {leaf: k for k, step in enumerate(live.order()) for leaf in step}
    at |= {op.name: at[op.leaves[0].name] for op in program.op_by_name.values() if op.leaves}
    inputs = {program.storage_of(n) for n in program.inputs}
    blocks: dict[str, list[LiveRange]] = {}
    for row in live.ranges():
        if row.block is not None and row.last is not None:
            blocks.setdefault(row.block, []).append(row)
    spots: dict[str, Place] = {}
    placed: list[tuple[int, int, int, int]] = []
    for block, rows in blocks.items():
        if block in inputs:
            spots.update({r.storage: Place(block, 0) for r in rows if r.storage != block})
            continue
        begin = min(at[r.first] for r in rows if r.first is not None)
        end = max(at[r.last] for r in rows if r.last is not None)
        size = -(-max(r.bytes for r in rows) // 64) * 64
        offset = 0
        while any(
            begin <= e and b <= end and offset < o + s and o < offset + size
            for b, e, o, s in placed
        ):
            offset += 64
        placed.append((begin, end, offset, size))
        spots.update({r.storage: Place("arena", offset) for r in rows})
    return spots


def agree_in_shared_memory(program: Program) -> None:
    assume(not reads_what_it_accumulates(program))
    sizes = {s: s.hint or 1 for s in program.sizes}
    places = shared_places(program)
    compiled = compile_program(program, plan=places, externs=EXTERNS, optimise=OPTIMISE)
    named = {s.name: n for s, n in sizes.items()}
    found = out_of_bounds(compiled, inputs_for(program, sizes), sizes=named, undecidable=ALL)
    # A donated input may be overwritten by what lives in its memory afterwards.
    seen = [line for line in found if line.partition(":")[0] not in program.donated]
    if seen:
        assume(not shows_bits_of_nan(program, inputs_for(program, sizes), named))
    assert not seen, "\n".join([*seen, str(places), show_program(program)])


@settings(max_examples=EXAMPLES)
@given(relays())
def test_storages_that_take_over_blocks_agree(program: Program) -> None:
    agree_in_shared_memory(program)


@settings(max_examples=EXAMPLES)
@given(small_programs(groups=True, moves=SORTED_MOVES))
def test_storages_that_share_memory_agree(program: Program) -> None:
    agree_in_shared_memory(program)


def test_a_difference_is_seen() -> None:
    from treadle.testing.differential import unlike

    one = np.array([1.0, np.nan, 3.0], np.float32)
    assert unlike(one, one.copy()) == ""
    assert "first [2]: 3.0 became 4.0" in unlike(one, np.array([1, np.nan, 4], np.float32))
    assert unlike(np.array([1]), np.array([2]))
