"""Kinds of collectives, and by which words they are known in programs, dumps and traces."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class CollectiveKind(Enum):
    """What a collective does with its message."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point_to_point"


# Longer names first: an all_gather is no gather of anything else.
_WORDS: Mapping[str, CollectiveKind] = {
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "all_gather": CollectiveKind.ALL_GATHER,
    "allgather": CollectiveKind.ALL_GATHER,
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "allreduce": CollectiveKind.ALL_REDUCE,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
    "send": CollectiveKind.POINT_TO_POINT,
    "recv": CollectiveKind.POINT_TO_POINT,
    "permute": CollectiveKind.POINT_TO_POINT,
}


def named_kind(target: str) -> CollectiveKind | None:
    """The kind that a name speaks of; None if it speaks of none."""
    plain = target.lower().replace("-", "_")
    return next((kind for word, kind in _WORDS.items() if word in plain), None)


def kind_of_collective(target: str) -> CollectiveKind:
    """The kind by the name of what is called; what is not known is costed as an all-reduce."""
    return named_kind(target) or CollectiveKind.ALL_REDUCE
