"""The rules a program keeps, stage by stage, each with a code and a message.

Rules are functions `(program) -> violations`; a stage is a tuple of rules. They only look: a rule
cannot change the program. The pass runner checks the stage after every pass that changed
something, so a pass cannot forget; `verify` checks by hand.

    Stage.LOOPS     single operations in order, nothing grouped yet
    Stage.GROUPED   operations may stand in groups
    Stage.KERNELS   everything that generated code runs is a nest of a kernel
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import TypeAlias

from treadle.core.errors import SpecError, Violation
from treadle.core.garbage import paused_collection
from treadle.ir.effects import effects
from treadle.ir.kernel_parameters import parameters_are_so
from treadle.ir.loop_schedule import UnfitStepError, plan_loops
from treadle.ir.program import (
    Call,
    Foreach,
    Fused,
    Group,
    Grouped,
    Kernel,
    Loop,
    MixOrder,
    Nest,
    Program,
    Template,
    UserKernel,
    walk_operations,
)
from treadle.ir.spec_body import BODY_RULES
from treadle.ir.spec_flow import FLOW_RULES
from treadle.ir.spec_names import NAME_RULES

Rule: TypeAlias = Callable[[Program], Iterable[Violation]]


class Stage(Enum):
    """How far a program has come."""

    LOOPS = "loops"
    GROUPED = "grouped"
    KERNELS = "kernels"


def no_groups(program: Program) -> Iterator[Violation]:
    """IR018: before fusion, operations stand alone."""
    for op in program.ops:
        if isinstance(op, Group):
            kind = type(op).__name__
            yield Violation("IR018", f"a {kind} group is not allowed before grouping", op.name)


def sound_groups(program: Program) -> Iterator[Violation]:
    """IR019: a group has members, on its own device, and nests only as its kind allows."""
    for op in walk_operations(program.ops):
        if not isinstance(op, Group):
            continue
        if not op.members:
            yield Violation("IR019", "a group needs at least one member", op.name)
        for m in op.members:
            if m.device != op.device:
                message = f"member {m.name} is on {m.device}, the group on {op.device}"
                yield Violation("IR019", message, op.name)
        if isinstance(op, Foreach):
            yield from _independent(op, program)
        for m in op.members:
            if isinstance(m, Group) and type(m) not in MAY_HOLD[type(op)]:
                outer, inner = type(op).__name__, type(m).__name__
                yield Violation("IR019", f"a {outer} group may not hold a {inner} group", op.name)


def _independent(op: Group, program: Program) -> Iterator[Violation]:
    """Members of one launch run in any order: none may touch what another one writes."""
    writer: dict[str, str] = {}
    for m in op.members:
        for name in (*effects(m).writes, *effects(m).mutates):
            writer.setdefault(program.storage_of(name), m.name)
    for m in op.members:
        for name in effects(m).touched:
            other = writer.get(program.storage_of(name), m.name)
            if other != m.name:
                message = f"{m.name} touches {name}, which {other} writes in the same launch"
                yield Violation("IR019", message, op.name)


def sound_kernels(program: Program) -> Iterator[Violation]:
    """KER003: nests stand in kernels, say what they run, and fit the kernel's shape."""
    for op in walk_operations(program.ops):
        if not isinstance(op, Kernel):
            if isinstance(op, Group) and any(isinstance(m, Nest) for m in op.members):
                yield Violation("KER003", "a nest stands only in a kernel", op.name)
            continue
        calls = [m for m in op.members if isinstance(m, Call)]
        if len(calls) != (op.shape == "template"):
            message = f"a kernel of shape {op.shape} with {len(calls)} calls"
            yield Violation("KER003", message, op.name)
        for m in op.members:
            if isinstance(m, Nest) and not m.runs:
                yield Violation("KER003", f"nest {m.name} says nothing of what it runs", op.name)
            elif isinstance(m, Nest) and len(set(m.runs)) < len(m.runs):
                yield Violation("KER003", f"nest {m.name} says twice what it runs", op.name)
            elif isinstance(m, Nest):
                yield from _fitting_schedule(m)
            elif not isinstance(m, Nest | Template | UserKernel):
                kind = type(m).__name__
                yield Violation("KER003", f"a kernel is made of nests, not of a {kind}", op.name)
        if op.shape == "foreach":
            yield from _independent(op, program)
    for leaf in program.ops:
        if isinstance(leaf, Nest):
            yield Violation("KER003", "a nest stands only in a kernel", leaf.name)


def _fitting_schedule(nest: Nest) -> Iterator[Violation]:
    """KER006: the steps of a loop schedule fit the loops and values of their nest."""
    try:
        plan_loops(nest.body, nest.schedule)
    except UnfitStepError as e:
        yield Violation("KER006", str(e), nest.name)


def only_kernels(program: Program) -> Iterator[Violation]:
    """KER004: in the end loops stand in kernels, and no other groups are left but neighbours."""
    for op in walk_operations(program.ops):
        is_loop = isinstance(op, Loop) and not isinstance(op, Nest)
        if is_loop or isinstance(op, Fused | MixOrder | Foreach):
            yield Violation("KER004", f"a {type(op).__name__} is not yet a kernel", op.name)


MAY_HOLD: Mapping[type[Group], tuple[type[Group], ...]] = {
    Fused: (),
    MixOrder: (Fused,),
    Foreach: (Fused, MixOrder),
    Grouped: (Fused, MixOrder, Foreach, Kernel),
    Kernel: (),
}

# Names first: later rules look buffers up and need not repeat what is missing.
COMMON: tuple[Rule, ...] = (*NAME_RULES, *BODY_RULES, *FLOW_RULES)
SPEC: Mapping[Stage, tuple[Rule, ...]] = {
    Stage.LOOPS: (*COMMON, no_groups),
    Stage.GROUPED: (*COMMON, sound_groups, sound_kernels, parameters_are_so),
    Stage.KERNELS: (*COMMON, sound_groups, sound_kernels, parameters_are_so, only_kernels),
}


def violations(program: Program, stage: Stage = Stage.GROUPED) -> list[Violation]:
    """Everything that is wrong with `program`; rules over unknown names stop at those."""
    return list(program.derive(QUESTIONS[stage]))


def _violations(stage: Stage, program: Program) -> tuple[Violation, ...]:
    found: list[Violation] = []
    with paused_collection():
        for rule in SPEC[stage]:
            found.extend(rule(program))
            if found and rule is NAME_RULES[-1]:
                break  # without sound names the other rules would only repeat the complaint
    return tuple(found)


QUESTIONS: Mapping[Stage, Callable[[Program], tuple[Violation, ...]]] = {
    stage: partial(_violations, stage) for stage in Stage
}
"""The rules of each stage as a question that a program answers once."""


def verify(program: Program, stage: Stage = Stage.GROUPED) -> Program:
    """`program` itself, or a SpecError that lists what is wrong."""
    bad = violations(program, stage)
    if bad:
        raise SpecError(f"program {program.name} breaks the rules of stage {stage.value}", bad)
    return program
