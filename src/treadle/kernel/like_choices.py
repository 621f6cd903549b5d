"""Loop schedules for a CPU, chosen once for nests that are alike.

Layers and time steps repeat a few nests over other buffers. What `choose_steps` answers depends on
the pattern, on the form of each buffer and on who shares storage with whom; and on names only in
what it says.
"""

from __future__ import annotations

from treadle.core.verdict import Verdict
from treadle.ir.loop_schedule import Step
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Nest, Program
from treadle.kernel.choose_cpu import choose_steps


class LikeChoices:
    """Schedules that were chosen for nests of one program."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[tuple[Step, ...], Verdict]] = {}

    def steps(self, nest: Nest, program: Program) -> tuple[tuple[Step, ...], Verdict]:
        """What `choose_steps` gives."""
        key, buffers = form_of(nest, program)
        known = self._known.get(key)
        if known is None:
            steps, verdict = choose_steps(nest, program)
            reason = str(verdict.facts.get("reason", ""))
            # A refusal that names a buffer is true of this nest alone.
            if not any(f"'{name}'" in reason for name in buffers):
                self._known[key] = steps, verdict
            return steps, verdict
        steps, verdict = known
        facts = dict(verdict.facts)
        if "nest" in facts:
            facts["nest"] = nest.name
        return steps, Verdict(verdict.ok, verdict.code, facts)


def form_of(nest: Nest, program: Program) -> tuple[object, set[str]]:
    """All that a choice depends on, whatever buffers are called; and what they are called."""
    pattern, buffers = pattern_of(nest)
    roots: dict[str, int] = {}
    about = []
    for name in buffers:
        storage = program.storage_of(name)
        buffer, root = program.by_name[name], program.by_name[storage]
        number = roots.setdefault(storage, len(roots))
        about.append((buffer.dtype, number, root.dtype, root.layout, root.kind))
    return (pattern, tuple(about), program.numerics), {*buffers, *roots}
