"""The parameters of a kernel as its nests show them, and KER008: what it states of them is so.

Found from loads and stores: what is done with a storage and how it is gone through. What is not in
the nests, who may share memory with whom, is for liveness to say (`analysis.shared_memory`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from treadle.core.errors import Violation
from treadle.index import Domain, Expr, IndexMap, Kind, coefficient
from treadle.ir.body import Body
from treadle.ir.devices import alignment_for
from treadle.ir.effects import effects
from treadle.ir.parameters import Contiguity, KernelParameter, ParameterAccess
from treadle.ir.pattern import NAMES_A_BUFFER, pattern_of, place_of
from treadle.ir.program import Call, Kernel, Loop, Operation, Program, walk_operations


class _Passage(NamedTuple):
    """How a pattern goes through one of its buffers."""

    place: int
    loads: bool
    stores: bool
    adds: bool
    contiguity: Contiguity


ORDER = (Contiguity.CONTIGUOUS, Contiguity.STRIDED, Contiguity.INDIRECT)


def shown_parameters(program: Program, members: Sequence[Operation]) -> tuple[KernelParameter, ...]:
    """The parameters of a kernel of these members, in the order in which they are passed."""
    ways: dict[str, _Passage] = {}
    for name in (n for m in members for n in effects(m).touched):
        ways.setdefault(program.storage_of(name), _UNTOUCHED)
    for m in members:
        for name, way in _ways_of(m, program):
            storage = program.storage_of(name)
            ways[storage] = _both(ways[storage], way)
    known = program.derive(_alignments)
    return tuple([_parameter(storage, way, program, known) for storage, way in ways.items()])


_UNTOUCHED = _Passage(0, False, False, False, Contiguity.CONTIGUOUS)


def _parameter(
    storage: str, way: _Passage, program: Program, known: dict[str, int]
) -> KernelParameter:
    alignment = known.get(storage)
    if alignment is None:
        alignment = known[storage] = _alignment(program, storage)
    return KernelParameter(
        storage, _access(way), way.contiguity, alignment, of_caller=storage in _given(program)
    )


def _access(way: _Passage) -> ParameterAccess:
    if not way.stores and not way.adds:
        return ParameterAccess.READ
    if way.adds and not way.stores and not way.loads:
        return ParameterAccess.ACCUMULATE
    return ParameterAccess.READ_WRITE if way.loads or way.adds else ParameterAccess.WRITE


def _both(a: _Passage, b: _Passage) -> _Passage:
    worse = max(a.contiguity, b.contiguity, key=ORDER.index)
    return _Passage(0, a.loads or b.loads, a.stores or b.stores, a.adds or b.adds, worse)


def _ways_of(op: Operation, program: Program) -> Iterator[tuple[str, _Passage]]:
    if isinstance(op, Loop):
        pattern, buffers = pattern_of(op)
        for way in pattern.derive(_ways):
            yield buffers[way.place], way
        return
    assert isinstance(op, Call), f"'{op.name}' is neither a nest nor a call"
    of = effects(op)
    for name in of.touched:
        layout = program.by_name[name].layout
        walk = Contiguity.CONTIGUOUS if layout.is_contiguous else Contiguity.STRIDED
        changed = name in of.writes or name in of.mutates
        yield name, _Passage(0, name in of.reads or name in of.mutates, changed, False, walk)


def _ways(body: Body) -> list[_Passage]:
    found: dict[int, _Passage] = {}
    for at in body.walk():
        stmt = at.stmt
        if stmt.op not in NAMES_A_BUFFER:
            continue
        is_store = stmt.op == "store"
        adds = is_store and stmt.mode != "plain"
        walk = Contiguity.INDIRECT if stmt.op == "bucketize" else _walk(body, stmt.address)
        way = _Passage(0, not is_store, is_store and not adds, adds, walk)
        place = place_of(stmt.buffer)
        found[place] = _both(found.get(place, _UNTOUCHED), way)
    return [way._replace(place=place) for place, way in found.items()]


def _walk(body: Body, index: Expr) -> Contiguity:
    if any(s.kind is Kind.INDIRECT for s in index.free):
        return Contiguity.INDIRECT
    used = Domain([(v, n) for v, n in body.space.items() if v in index.free])
    form = IndexMap(used, (index,)).set_form()
    if not len(form.domain):
        return Contiguity.CONTIGUOUS
    step = coefficient(form.index, form.domain.vars[0]) if len(form.domain) == 1 else None
    dense = step is not None and step.value == 1
    return Contiguity.CONTIGUOUS if dense else Contiguity.STRIDED


# ------------------------------------------------------------------------------- alignment


def _alignments(program: Program) -> dict[str, int]:
    """Filled by need."""
    return {}


def _given(program: Program) -> frozenset[str]:
    return program.derive_from_buffers(_storages_given)


def _storages_given(program: Program) -> frozenset[str]:
    return frozenset(map(program.storage_of, program.inputs))


def _alignment(program: Program, storage: str) -> int:
    """What the address of a storage is a multiple of: that of an element, if not ours to place.

    Memory of the caller begins anywhere; so may what is written over it, and what a call gives.
    """
    buffer = program.by_name[storage]
    width = max(buffer.dtype.itemsize, 1)
    if program.donated or storage in _given(program) or storage in _of_calls(program):
        return width
    return alignment_for(buffer.device)


def _of_calls(program: Program) -> frozenset[str]:
    return program.derive(_storages_of_calls)


def _storages_of_calls(program: Program) -> frozenset[str]:
    """Storages that no loop is the first to write: who makes them decides where they lie."""
    found: set[str] = set()
    for op in program.leaves:
        if not isinstance(op, Loop):
            found.update([program.storage_of(n) for n in effects(op).writes])
    return frozenset(found)


# ------------------------------------------------------------------------------- the rule


def parameters_are_so(program: Program) -> Iterator[Violation]:
    """KER008: a kernel states every storage that it touches, and states it as it is."""
    for op in walk_operations(program.ops):
        if not isinstance(op, Kernel) or not op.parameters:
            continue
        shown = shown_parameters(program, op.members)
        said = [p.storage for p in op.parameters]
        if said != [p.storage for p in shown]:
            wanted = ", ".join(p.storage for p in shown)
            message = f"it states the parameters {', '.join(said)}, and touches {wanted}"
            yield Violation("KER008", message, op.name)
            continue
        for mine, true in zip(op.parameters, shown, strict=True):
            for message in _lies(mine, true, op):
                yield Violation("KER008", f"parameter {mine.storage} {message}", op.name)


def _lies(mine: KernelParameter, true: KernelParameter, op: Kernel) -> Iterator[str]:
    if mine.access is not true.access:
        yield f"is said to be {mine.access.value}; it is {true.access.value}"
    if mine.contiguity is not true.contiguity:
        yield f"is said to be {mine.contiguity.value}; it is {true.contiguity.value}"
    if mine.alignment < 1 or true.alignment % mine.alignment:
        yield f"is said to be aligned to {mine.alignment} bytes; known are {true.alignment}"
    if mine.of_caller != true.of_caller:
        yield "is the caller's" if true.of_caller else "is not the caller's"
    if mine.over is not None:
        given = next((p for p in op.parameters if p.storage == mine.over), None)
        if given is None or given.is_written or mine.access is not ParameterAccess.WRITE:
            yield f"is said to be written over {mine.over}, which is no parameter that it could be"
