"""How a compiled graph is called: what its arguments are, what it gives back, whom it calls.

Whoever captured the graph writes it down here; a host needs nothing else of the capture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from treadle.index import Expr
from treadle.ir.types import Layout
from treadle.runtime.library_calls import LibraryCall
from treadle.runtime.run_facts import Owner, RunFacts


@dataclass(frozen=True)
class TensorResult:
    """A storage, seen through a layout."""

    storage: str
    layout: Layout
    is_whole: bool
    """Whether that is the layout the storage has anyway."""


@dataclass(frozen=True)
class ObjectResult:
    """An object that a call made, or that the caller gave."""

    name: str


@dataclass(frozen=True)
class SizeResult:
    """A number that run-time sizes decide."""

    size: Expr


@dataclass(frozen=True)
class ConstantResult:
    """Always the same."""

    value: Any


Result: TypeAlias = "TensorResult | ObjectResult | SizeResult | ConstantResult"


@dataclass(frozen=True)
class Signature:
    """The arguments, results and calls of a graph."""

    tensors: Sequence[tuple[int, str]] = ()
    """(position among the arguments, buffer)."""
    objects: Sequence[tuple[int, str]] = ()
    """(position, name) of arguments that only calls look at."""
    numbers: Sequence[tuple[int, str]] = ()
    """(position, size) of arguments that are run-time sizes."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Tensors the graph holds itself, by buffer."""
    results: Sequence[Result] = ()
    mutated: frozenset[str] = frozenset()
    """Arguments that change."""
    calls: Mapping[str, LibraryCall] = field(default_factory=dict)
    """By operation."""
    owners: Mapping[str, Owner] = field(default_factory=dict)
    """Whose memory inputs lie in, where that is known."""
    is_inference: bool = False
    """Whether nothing has gradients: results may be views, and inputs are let go of early."""

    @cached_property
    def facts(self) -> RunFacts:
        """What the planner is told."""
        kept = [r.name for r in self.results if isinstance(r, ObjectResult)]
        calls = {name: call.facts for name, call in self.calls.items()}
        return RunFacts(calls, self.owners, frozenset(kept))
