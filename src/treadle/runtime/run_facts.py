"""What whoever captured a program knows about running it, as plain data for the planner.

A library call may allocate its results itself, keep what it was given, or pass Python objects on;
several inputs may be views of one piece of memory. A program alone does not say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from treadle.index import Expr


class ResultsAre(Enum):
    """Who decides where the results of a call lie."""

    WHERE_TOLD = "written where it is told"
    WHERE_TOLD_IF_PLAIN = "written where it is told, if that is row by row without gaps"
    ALLOCATED = "allocated by the call"


@dataclass(frozen=True)
class CallFacts:
    """What one call does with memory."""

    results: ResultsAre = ResultsAre.WHERE_TOLD
    keeps_arguments: bool = False
    """Whether it may look at its arguments after it returned: nobody else may use their bytes."""
    objects: tuple[str, ...] = ()
    """Objects of the host's language that it makes or is given."""
    draws: bool = False
    """Whether all it does besides is to draw random numbers, and a recording draws new ones."""


@dataclass(frozen=True)
class Owner:
    """The memory behind an input: what is equal for all views of it, and its bytes if known."""

    key: object
    bytes: Expr | None = None


@dataclass(frozen=True)
class RunFacts:
    """Everything the planner is told besides the program."""

    calls: Mapping[str, CallFacts] = field(default_factory=dict)
    """By operation; a call that is not here writes where it is told and keeps nothing."""
    owners: Mapping[str, Owner] = field(default_factory=dict)
    """By input; one that is not here lies in memory of its own."""
    kept_objects: frozenset[str] = frozenset()
    """Objects that the caller gets."""


NO_FACTS = RunFacts()
PLAIN_CALL = CallFacts()
