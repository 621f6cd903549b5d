"""What a pass is: a named function from program to program, and the stage it delivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from treadle.core.context import Ctx
from treadle.ir.program import Program
from treadle.ir.spec import Stage

PassFunction: TypeAlias = Callable[[Program, Ctx], Program]


@dataclass(frozen=True)
class Pass:
    """A pass: it returns its input, the very object, if it changes nothing."""

    name: str
    run: PassFunction
    after: Stage
    """The stage whose rules hold after it."""
    only_after: str | None = None
    """Run only if the pass of this name changed the program."""
    moves_collectives: bool = False
    """Collectives of a group may change places: it decides the same on every rank."""
    rounds: bool = False
    """Sums may be rounded otherwise, as far as the program's numerics allow."""

    @property
    def summary(self) -> str:
        """The first line of the pass's documentation."""
        doc = self.run.__doc__ or ""
        return doc.strip().split("\n")[0]
