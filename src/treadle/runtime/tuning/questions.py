"""Which nests of a program are worth measuring, and between which schedules.

A question is about all nests of a program that are alike: layers and time steps are asked about
once. Its key says everything that decides the answer but the device, in words that hold in any
process: the nest, its memory, the likely sizes, the schedules to choose from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from treadle import __version__
from treadle.analysis.cost import Roofline, work_of
from treadle.analysis.gpu_time import scheduled_ns
from treadle.index import hint
from treadle.ir.loop_schedule import Bind, Binding, Step
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Kernel, Nest, Operation, Program
from treadle.ir.text_print import show_buffer, show_operation
from treadle.kernel.candidates_gpu import (
    MOST_CANDIDATES,
    Candidate,
    candidates,
    may_be_measured,
)
from treadle.kernel.like_choices import form_of

VERSION = 1
"""Part of every key: what a question means."""
MOST_QUESTIONS = 8
"""So many are asked about one program, those that take longest first."""
SHORTEST_NS = 4_000.0
"""A launch that is predicted to take less is left to the model."""
SHARE = 0.02
"""And so is what takes less than this share of all generated kernels."""


@dataclass(frozen=True)
class Question:
    """Nests that are alike, and the schedules they may have."""

    key: str
    kernel: str
    """The first launch it is about, by name."""
    nests: tuple[str, ...]
    """All nests it is about."""
    measured: tuple[str, ...]
    """Those of them that are measured, in one kernel; more than one if they share launches."""
    candidates: tuple[Candidate, ...]
    """The first is what the model takes."""
    total_ns: float
    """What all of them are predicted to take in one run."""


@dataclass
class _Alike:
    """Nests of one form while they are collected."""

    op: Kernel
    nest: Nest
    nests: list[str]
    first: list[str]
    """Those in the first kernel."""
    launches: int = 0


def questions_of(program: Program, model: Roofline, most: int = MOST_CANDIDATES) -> list[Question]:
    """What is worth measuring, the longest first."""
    found: list[Question] = []
    groups = _alike(program)
    times = {key: _total_ns(program, model, one) for key, one in groups.items()}
    least = SHARE * sum(times.values())
    for key in sorted(groups, key=lambda k: -times[k]):
        one = groups[key]
        if times[key] < least or times[key] / one.launches < SHORTEST_NS:
            continue
        if not may_be_measured(one.nest, program):
            continue
        moved = float(work_of(program, one.nest).bytes)
        device = model.device_of(one.op)
        choices = candidates(one.nest, program, moved, device, len(one.first), most)
        if len(choices) > 1:
            name = _key(program, one, choices)
            found.append(
                Question(name, one.op.name, tuple(one.nests), tuple(one.first), choices, times[key])
            )
        if len(found) == MOST_QUESTIONS:
            break
    return found


def with_schedules(program: Program, chosen: Mapping[str, tuple[Step, ...]]) -> Program:
    """The program with other schedules for some nests, by name; itself, if there are none."""
    if not chosen:
        return program

    def changed(op: Operation) -> Operation:
        if isinstance(op, Nest):
            return replace(op, schedule=chosen[op.name]) if op.name in chosen else op
        if not isinstance(op, Kernel) or chosen.keys().isdisjoint(m.name for m in op.members):
            return op
        # How loops are walked changes nothing of what the kernel is given.
        return replace(op, members=tuple([changed(m) for m in op.members]))

    return program.with_ops(tuple([changed(op) for op in program.ops]))


def _alike(program: Program) -> dict[object, _Alike]:
    """The scheduled nests of generated kernels by what decides how long they take."""
    found: dict[object, _Alike] = {}
    for op in program.ops:
        if not isinstance(op, Kernel):
            continue
        inside: dict[object, list[Nest]] = {}
        for m in op.members:
            if isinstance(m, Nest) and _is_shared_out(m):
                form, _ = form_of(m, program)
                inside.setdefault((form, m.schedule), []).append(m)
        for form, nests in inside.items():
            shares = op.shape == "foreach" and len(nests) > 1
            key = (form, len(nests) if shares else 1)
            names = [n.name for n in nests]
            one = found.get(key)
            if one is None:
                first = names if shares else names[:1]
                one = found[key] = _Alike(op, nests[0], [], first)
            one.nests += names
            one.launches += 1 if shares else len(names)
    return found


def _is_shared_out(nest: Nest) -> bool:
    """Whether programs of a GPU share its points."""
    return any(isinstance(s, Bind) and s.to is Binding.GRID for s in nest.schedule)


def _total_ns(program: Program, model: Roofline, one: _Alike) -> float:
    """What nests that are alike take in one run."""
    moved, count = float(work_of(program, one.nest).bytes), len(one.first)
    device = model.device_of(one.op)
    return scheduled_ns([(one.nest, moved)] * count, device, count > 1) * one.launches


def _key(program: Program, one: _Alike, choices: Sequence[Candidate]) -> str:
    """What equal questions have in common, in any process."""
    pattern, buffers = pattern_of(one.nest)
    shown = replace(
        one.nest, name="n", device="cuda", body=pattern.body, runs=("n",), origins=(), schedule=()
    )
    roots: dict[str, int] = {}
    memory = []
    for name in buffers:
        storage = program.storage_of(name)
        number = roots.setdefault(storage, len(roots))
        root = replace(program.by_name[storage], name=f"s{number}", device="cuda")
        memory.append([program.by_name[name].dtype.text, show_buffer(root)])
    sizes = [[s.name, hint(s)] for s in program.sizes]
    whole = [
        VERSION,
        __version__,
        show_operation(shown),
        memory,
        str(program.numerics),
        sizes,
        len(one.first),
        [c.text for c in choices],
    ]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()
