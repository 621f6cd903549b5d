"""Pairs of kernels worth looking at: those that share data, and no more.

Every dependence through a storage makes a pair. Readers of the same version of a storage that walk
through it alike are linked in a row, each with the next: a storage with a thousand readers gives a
thousand pairs, not half a million, and once two are one, the row has closed up.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.analysis.deps import Dependences, DepKind
from treadle.schedule.kernels import KernelDraft
from treadle.schedule.touches import Touch


def candidate_pairs(kernels: list[KernelDraft], deps: Dependences) -> Iterator[tuple[int, int]]:
    """Pairs of positions, earlier first, each once."""
    seen: set[tuple[int, int]] = set()
    for d in deps.deps:
        if d.kind is not DepKind.CONTROL and d.storage and _fusable(kernels, d.source, d.target):
            pair = (d.source, d.target)
            if pair not in seen:
                seen.add(pair)
                yield pair
    for pair in _readers_in_rows(kernels, deps):
        if pair not in seen:
            seen.add(pair)
            yield pair


def _fusable(kernels: list[KernelDraft], a: int, b: int) -> bool:
    return not kernels[a].fixed and not kernels[b].fixed


def _readers_in_rows(kernels: list[KernelDraft], deps: Dependences) -> Iterator[tuple[int, int]]:
    versions = deps.reads_version
    for storage, users in deps.users.items():
        if len(users) < 2:
            continue
        last: dict[object, int] = {}
        for user in users:
            kernel = kernels[user]
            if kernel.fixed or kernel.call is not None:
                continue  # a call takes in only what makes its operands or uses its result
            version = versions.get((user, storage))
            if version is None:
                continue
            for t in kernel.touches.get(storage, ()):
                if t.is_write:
                    continue
                # Maps to the same addresses in another order may be made alike.
                for way in _ways(t, kernel):
                    row = (version, *way)
                    before = last.get(row)
                    if before is not None and before != user:
                        yield before, user
                    last[row] = user


def _ways(t: Touch, kernel: KernelDraft) -> Iterator[tuple[object, ...]]:
    yield t.access_map, t.level, t.computed, kernel.space.total
