"""A schedule as data: what was dropped, rewritten and grouped, in which order. Saved and replayed.

    schedule = schedule_of(program, scheduled)
    schedule.save("s.json")
    replay(program, Schedule.load("s.json")) == scheduled

It says what the passes did, not how they found it, so that a schedule can be kept, compared with
another one, and applied again without searching. Replaying checks that the operations it speaks of
are there and that the result is sound.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TypeAlias

from treadle.analysis.certificate import border_changes
from treadle.core.errors import InputError
from treadle.core.reading import read_text
from treadle.ir.effects import effects
from treadle.ir.program import GROUP_KINDS, Group, Operation, Program
from treadle.ir.spec import verify
from treadle.ir.text import parse_program, show_program

VERSION = 1
KEY = "treadle_schedule"
Node: TypeAlias = "str | dict[str, object]"
KINDS = {kind.__name__: kind for kind in GROUP_KINDS}


@dataclass(frozen=True)
class Schedule:
    """Top operations in order (names, or groups of them), and what replaces what."""

    program: str
    structure: tuple[Node, ...]
    dropped: tuple[str, ...]
    rewritten: str
    """A program text with the operations whose bodies changed, over the buffers they touch."""
    buffers: tuple[str, ...]
    """The buffers that are left, in order."""

    def kernels(self) -> list[frozenset[str]]:
        """The leaves of each top operation."""
        return [frozenset(_names(node)) for node in self.structure]

    def to_text(self) -> str:
        """The schedule as JSON; `parse` reads it back."""
        return json.dumps({KEY: VERSION, **self.__dict__}, indent=1)

    def save(self, path: str) -> None:
        """Write the schedule as JSON."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.to_text())

    @classmethod
    def load(cls, path: str) -> Schedule:
        """The schedule in a file, or one InputError."""
        return cls.parse(read_text(path, "SCH001"), path)

    @classmethod
    def parse(cls, text: str, path: str = "schedule") -> Schedule:
        """The schedule in a text, or one InputError."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict):
                raise ValueError(f"a JSON {type(data).__name__}")
            if data.get(KEY) != VERSION:
                raise ValueError(f"version {data.get(KEY)!r}")
            found = cls(
                program=str(data["program"]),
                structure=tuple(data["structure"]),
                dropped=tuple(map(str, data["dropped"])),
                rewritten=str(data["rewritten"]),
                buffers=tuple(map(str, data["buffers"])),
            )
            found.kernels()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            what = f"one without {e}" if isinstance(e, KeyError) else str(e)[:80]
            raise InputError(
                file=path, line=1, expected=f"a schedule of version {VERSION}", found=what,
                code="SCH001",
            ) from None  # fmt: skip
        return found


def _names(node: Node) -> list[str]:
    if isinstance(node, str):
        return [node]
    members = node["members"]
    if not isinstance(members, list) or node.get("kind") not in KINDS:
        raise ValueError("a group without members or of unknown kind")
    return [name for m in members for name in _names(m)]


def schedule_of(before: Program, after: Program) -> Schedule:
    """What turns `before` into `after`."""
    old = {leaf.name: leaf for leaf in before.leaves}
    changed = [leaf for leaf in after.leaves if old.get(leaf.name) != leaf]
    known = before.by_name
    new_buffers = [b for b in after.buffers if known.get(b.name) != b]
    touched = {n for leaf in changed for n in effects(leaf).touched} | {b.name for b in new_buffers}
    touched |= {after.storage_of(n) for n in touched}
    part = Program(
        name="rewritten",
        buffers=tuple(b for b in after.buffers if b.name in touched),
        ops=tuple(replace(leaf, after=()) for leaf in changed),
        sizes=after.sizes,
        numerics=after.numerics,
    )
    left = {leaf.name for leaf in after.leaves}
    return Schedule(
        program=before.name,
        structure=tuple(_node(op) for op in after.ops),
        dropped=tuple(name for name in old if name not in left),
        rewritten=show_program(part),
        buffers=tuple(b.name for b in after.buffers),
    )


def _node(op: Operation) -> Node:
    if not isinstance(op, Group):
        return op.name
    return {
        "kind": type(op).__name__,
        "name": op.name,
        "device": op.device,
        "members": [_node(m) for m in op.members],
    }


def replay(program: Program, schedule: Schedule) -> Program:
    """`program` under the schedule, verified; an InputError if it does not fit."""
    part = parse_program(schedule.rewritten, "schedule")
    changed = {op.name: op for op in part.ops}
    leaves = {leaf.name: leaf for leaf in program.leaves}
    for name, op in changed.items():
        if name in leaves:
            changed[name] = replace(op, after=leaves[name].after, origins=leaves[name].origins)
    known = {**program.by_name, **part.by_name}
    missing = [n for n in schedule.buffers if n not in known]
    named = [n for node in schedule.structure for n in _names(node)]
    missing += [n for n in named if n not in leaves and n not in changed]
    if missing:
        raise _misfit(f"'{missing[0]}', which the program does not have")
    gone = set(schedule.dropped)
    # Operations that a pass made are written out as a whole.
    left = [n for n in leaves if n not in gone] + [n for n in changed if n not in leaves]
    if sorted(left) != sorted(named):
        raise _misfit("other operations than the program has")

    def build(node: Node) -> Operation:
        if isinstance(node, str):
            op = changed[node] if node in changed else leaves[node]
            return replace(op, after=tuple(a for a in op.after if a not in gone))
        members = node["members"]
        assert isinstance(members, list)
        kind = KINDS[str(node["kind"])]
        parts = tuple([build(m) for m in members])
        return kind(name=str(node["name"]), device=str(node["device"]), members=parts)

    ops = tuple([build(node) for node in schedule.structure])
    found = replace(
        program,
        buffers=tuple(known[n] for n in schedule.buffers),
        ops=ops,
        numerics=program.numerics.meet(part.numerics),  # a schedule may tighten, never loosen
    )
    if border_changes(program, found):
        raise _misfit("other inputs or outputs")
    return verify(found)


def _misfit(what: str) -> InputError:
    return InputError(
        file="schedule", expected="a schedule of this program", found=what, code="SCH002"
    )
