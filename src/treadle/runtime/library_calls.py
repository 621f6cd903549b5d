"""Library calls as a host makes them: a function, and its arguments with holes.

    aten.addmm(%2, %0 seen as (8, 4), %1, beta=1)

`Hole(k)` is argument number k of the program's call (a buffer or a run-time size, which passes may
rename), `ViewHole` a buffer seen through another layout, `Held` an object made by an earlier call
or given by the caller. Everything else is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.ir.types import Layout
from treadle.runtime.run_facts import CallFacts, ResultsAre


@dataclass(frozen=True)
class Hole:
    """Argument number `position` of the program's call."""

    position: int


@dataclass(frozen=True)
class ViewHole:
    """A buffer, argument number `position`, seen through another layout."""

    position: int
    layout: Layout


@dataclass(frozen=True)
class Held:
    """An object of the host's language, known by name at run time."""

    name: str


@dataclass
class LibraryCall:
    """A function, its arguments with holes, and where its results go."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_single: bool = True
    """Whether the function returns one thing rather than several."""
    results: list[tuple[int, str, bool]] = field(default_factory=list)
    """(position among the results, name, whether it is an object rather than a buffer)."""
    into: Callable[..., Any] | None = None
    """The form that writes into memory it is given (`out`), with the same arithmetic.

    Of a call with several results it is given all of them, in the order of `results`.
    """
    into_any: bool = False
    """Whether that memory may lie in any way, rather than row by row without gaps."""
    keeps_arguments: bool = False
    """Whether it may look at its arguments after it returned."""
    moves_arguments: bool = False
    """Whether it may give the tensors it changes other memory."""
    draws: bool = False
    """Whether it draws from the device's own generator, which recordings move on as it does."""
    wait: Callable[[Any], Any] | None = None
    """For a collective: waits for one of its results and gives it."""

    @property
    def facts(self) -> CallFacts:
        """What the planner is told of it."""
        names = [name for _, name, is_object in self.results if is_object]
        names += list(held_in([*self.args, *self.kwargs.values()]))
        is_told = self.into is not None
        told = ResultsAre.WHERE_TOLD if self.into_any else ResultsAre.WHERE_TOLD_IF_PLAIN
        results = told if is_told else ResultsAre.ALLOCATED
        objects = tuple(dict.fromkeys(names))
        return CallFacts(results, self.keeps_arguments, objects, self.draws)


def held_in(args: Sequence[Any]) -> Iterator[str]:
    """The objects that arguments name, nested ones too."""
    for a in args:
        if isinstance(a, Held):
            yield a.name
        elif isinstance(a, list | tuple):
            yield from held_in(a)
        elif isinstance(a, dict):
            yield from held_in(list(a.values()))


def has_holes(args: Sequence[Any]) -> bool:
    """Whether any argument, however deep, is known at run time only."""
    return any(
        isinstance(a, Hole | ViewHole | Held)
        or (isinstance(a, list | tuple) and has_holes(a))
        or (isinstance(a, dict) and has_holes(list(a.values())))
        for a in args
    )
