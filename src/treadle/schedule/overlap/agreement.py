"""The order of collectives as data that ranks can compare, so that a difference is no hang.

    order = collective_order(program)
    order.check_against(other, mine="rank 0", theirs="rank 3")     COL008 with both orders

Two programs with the same collectives have the same `question`; ranks that schedule it alike give
the same `digest`. Names do not count, only what is sent, in which group, in which order.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from treadle.analysis.comm.tasks import message_bytes
from treadle.core.errors import InputError, TreadleError
from treadle.ir.program import Collective, Program
from treadle.ir.ranks import show_ranks


class RankOrderError(TreadleError):
    """COL008: two ranks would run their collectives in different orders."""

    exit_code = 1


@dataclass(frozen=True)
class CollectiveOrder:
    """What a rank sends in each group, in order."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def question(self) -> str:
        """The same for all programs that send the same things, in any order."""
        return _digest([[name, sorted(row)] for name, row in self.groups])

    @property
    def digest(self) -> str:
        """The same for all programs that send the same things in the same order."""
        return _digest(self.groups)

    def to_text(self) -> str:
        """The order as JSON; `parse` reads it back."""
        return json.dumps(self.groups)

    @classmethod
    def parse(cls, text: str) -> CollectiveOrder:
        """The order that `to_text` wrote."""
        try:
            rows = json.loads(text)
            return cls(tuple((str(name), tuple(map(str, row))) for name, row in rows))
        except (ValueError, TypeError):
            found = text[:60]
            raise InputError(file="order", expected="collectives by group", found=found) from None

    def check_against(
        self, other: CollectiveOrder, mine: str = "here", theirs: str = "there"
    ) -> None:
        """Raise COL008 with both orders if they differ in any group."""
        known = dict(other.groups)
        for name, row in self.groups:
            if known.get(name, ()) != row:
                raise _difference(name, row, known.get(name, ()), mine, theirs)
        for name, row in other.groups:
            if name not in dict(self.groups):
                raise _difference(name, (), row, mine, theirs)


def collective_order(program: Program) -> CollectiveOrder:
    """What a program sends in each group, in its present order."""
    rows: dict[str, list[str]] = {}
    for op in program.leaves:
        if isinstance(op, Collective):
            ranks = f" among ranks {show_ranks(op.ranks)}" if op.ranks else ""
            what = f"{op.target} of {message_bytes(program, op)} bytes{ranks}"
            rows.setdefault(op.group, []).append(what)
    return CollectiveOrder(tuple((name, tuple(row)) for name, row in sorted(rows.items())))


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:32]


def _difference(
    group: str, mine: tuple[str, ...], theirs: tuple[str, ...], who: str, other: str
) -> RankOrderError:
    at = next(
        (k for k, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
        min(len(mine), len(theirs)),
    )
    notes = []
    for name, row in ((who, mine), (other, theirs)):
        shown = [f"{k}: {row[k]}" for k in range(max(0, at - 1), min(len(row), at + 3))]
        notes.append(f"{name}: {'; '.join(shown) or 'nothing more'}")
    message = f"ranks order the collectives of group '{group}' differently from number {at} on"
    return RankOrderError(message, code="COL008", notes=notes)
