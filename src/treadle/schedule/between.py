"""Whether two loops can come to stand in one kernel: what is in between must be able to join them.

    t = x + y ; u = norm(t) ; m = u @ w ; z = t + m      t and z cannot: m needs u and z needs m

Loops in between may become members themselves. Calls and products may not.
"""

from __future__ import annotations

from collections.abc import Collection

from treadle.analysis.deps import Dependences
from treadle.ir.pattern import pattern_of
from treadle.ir.products import is_product
from treadle.ir.program import Loop, Operation, Program


class Between:
    """Looks at what lies between operations of one program, so far as it is near."""

    def __init__(self, program: Program, deps: Dependences, farthest: int) -> None:
        self._leaves, self._deps, self._farthest = program.leaves, deps, farthest

    def can_join(self, kernel: Collection[int], position: int) -> bool:
        """Whether no call between members of a kernel and an operation needs one, to be needed.

        What takes more than a policy's number of operations to tell is too far away.
        """
        first = min(kernel)
        seen: dict[int, bool] = {}
        todo = [(position, False)]
        while todo:
            at, behind_call = todo.pop()
            for d in self._deps.into[at]:
                if d.source in kernel:
                    if behind_call:
                        return False
                    continue
                is_new = d.source not in seen or (behind_call and not seen[d.source])
                if d.source < first or not is_new:
                    continue
                behind = behind_call or stays_alone(self._leaves[d.source])
                seen[d.source] = behind
                if len(seen) > self._farthest:
                    return False
                todo.append((d.source, behind))
        return True


def stays_alone(op: Operation) -> bool:
    """Whether an operation takes nobody in before itself: a call, or a product in tiles."""
    return not isinstance(op, Loop) or bool(pattern_of(op).pattern.derive(is_product))
