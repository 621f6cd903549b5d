"""A sum of parts that lie beside each other is those parts, one behind the other.

    y = select_scatter(0, a, 1, 2) + select_scatter(0, b, 1, 1) + select_scatter(0, c, 1, 0)
    ->  y = cat([c, b, a], 1)

That is what gradients of time steps are made of: each step of a loop reads its own place of one
tensor, and its gradient is a whole tensor of zeros with one place filled. Written as they stand,
every element asks of every part whether it lies there. A few parts stay as they are: they are read
where they are needed, and nothing is written for them.

Nothing is rounded otherwise: at every place only one term of the sum is no zero. What has values
at all places (`base`) may be one term more, and is added once. Parts of the very same places are
added up first, in the order they had; with a base that would be another order, and they stay as
they are.

    base + part + part     ->  base + cat(...)
    base + part + base     ->  stays a sum of two bases, the parts of the first beside each other
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten
FEWEST = 5
"""So many parts are put beside each other; fewer are chosen among where they are read."""
ZEROS = frozenset({aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default})
FULL = frozenset({aten.full.default, aten.new_full.default, aten.full_like.default})


@dataclass(frozen=True)
class PlacedPart:
    """What is added up at `start` to `stop` of a dimension, which values of single places lack."""

    start: int
    stop: int
    is_single: bool
    values: tuple[Node, ...]


@dataclass(frozen=True)
class SumOfParts:
    """Parts along one dimension, on top of a base or of zeros."""

    base: Node | None
    dim: int
    parts: tuple[PlacedPart, ...]
    zeros: Node


def put_parts_beside(gm: GraphModule) -> int:
    """Rewrite the sums of parts of a functional graph; gives how many."""
    mode: Any = torch._guards.detect_fake_mode(
        [n.meta.get("val") for n in gm.graph.find_nodes(op="placeholder")]
    )
    sums: dict[Node, SumOfParts] = {}
    for node in gm.graph.nodes:
        found = _as_sum(node, sums)
        if found is not None:
            sums[node] = found
    roots = [n for n in sums if len(sums[n].parts) >= FEWEST and not _is_in_larger(n, sums)]
    if mode is None or not roots:
        return 0
    with mode, torch.no_grad():
        for root in roots:
            _write(root, sums[root])
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return len(roots)


def _as_sum(node: Node, sums: dict[Node, SumOfParts]) -> SumOfParts | None:
    """What a node adds up, as parts; None if it is no such sum."""
    if node.target in (aten.select_scatter.default, aten.slice_scatter.default):
        inner = _all_of_it(node)
        return _one_part(node) if inner is None else _parts_alone(_term(inner, sums))
    if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return None
    a, b = node.args
    if not isinstance(a, Node) or not isinstance(b, Node) or a is b or not _alike(node, a, b):
        return None
    return _together(_term(a, sums), _term(b, sums))


def _parts_alone(term: SumOfParts | Node) -> SumOfParts | None:
    return term if isinstance(term, SumOfParts) else None


def _all_of_it(node: Node) -> Node | None:
    """What is put over a whole tensor: slices of an open size (`x[:, k]`) leave that behind."""
    whole, value = node.args[:2]
    if node.target is not aten.slice_scatter.default or not isinstance(value, Node) or node.kwargs:
        return None
    start, stop, step = _bounds(node)
    is_all = start in (None, 0) and step == 1 and (stop is None or stop == sys.maxsize)
    return value if is_all and isinstance(whole, Node) and _alike(node, whole, value) else None


def _bounds(scatter: Node) -> tuple[Any, Any, Any]:
    """Begin, end and step of the slice that is written."""
    given: list[Any] = list(scatter.args[3:])
    start, stop, step = given + [None, None, 1][len(given) :]
    return start, stop, step


def _term(node: Node, sums: dict[Node, SumOfParts]) -> SumOfParts | Node:
    """A term of a sum: its parts, if nobody else reads it; else the term itself."""
    found = sums.get(node)
    return found if found is not None and len(_readers(node)) == 1 else node


def _together(a: SumOfParts | Node, b: SumOfParts | Node) -> SumOfParts | None:
    """Two terms as one sum of parts, if they do not meet and only one of them has a base."""
    if isinstance(a, SumOfParts) and isinstance(b, SumOfParts):
        return _beside(a, b)
    base, parts = (b, a) if isinstance(a, SumOfParts) else (a, b)
    if isinstance(base, SumOfParts) or isinstance(parts, Node) or parts.base is not None:
        return None
    return SumOfParts(base, parts.dim, parts.parts, parts.zeros)


def _beside(a: SumOfParts, b: SumOfParts) -> SumOfParts | None:
    """The parts of two sums in the order in which they lie; None if some of them meet."""
    if a.dim != b.dim or (a.base is not None and b.base is not None):
        return None
    parts: list[PlacedPart] = []
    for part in sorted((*a.parts, *b.parts), key=lambda p: p.start):
        if not parts or parts[-1].stop <= part.start:
            parts.append(part)
            continue
        both = _added(parts[-1], part) if a.base is None and b.base is None else None
        if both is None:
            return None
        parts[-1] = both
    return SumOfParts(a.base or b.base, a.dim, tuple(parts), a.zeros)


def _added(a: PlacedPart, b: PlacedPart) -> PlacedPart | None:
    """Two parts of the same places as one, if that keeps the order in which they are added."""
    if (a.start, a.stop, a.is_single) != (b.start, b.stop, b.is_single):
        return None
    if len(b.values) > 1:
        a, b = b, a
    return (
        PlacedPart(a.start, a.stop, a.is_single, a.values + b.values)
        if len(b.values) == 1
        else None
    )


def _one_part(node: Node) -> SumOfParts | None:
    """Zeros with one part filled, at places known now."""
    zeros, value = node.args[:2]
    if not isinstance(zeros, Node) or not isinstance(value, Node) or not _is_zero(zeros):
        return None
    whole = zeros.meta["val"]
    if value.meta["val"].dtype != whole.dtype or node.kwargs:
        return None
    dim: Any = node.args[2] if len(node.args) > 2 else 0
    size = whole.shape[dim] if isinstance(dim, int) and whole.dim() else None
    if not isinstance(size, int):
        return None
    is_single = node.target is aten.select_scatter.default
    start, stop, step = (node.args[3], None, 1) if is_single else _bounds(node)
    if step != 1 or not isinstance(start, int | None) or not isinstance(stop, int | None):
        return None
    first = _inside(start, size, 0)
    last = first + 1 if is_single else _inside(stop, size, size)
    if first >= last:
        return None
    return SumOfParts(
        None, dim % whole.dim(), (PlacedPart(first, last, is_single, (value,)),), zeros
    )


def _inside(place: int | None, size: int, otherwise: int) -> int:
    """A place along a dimension, counted from its begin and not beyond its end."""
    if place is None:
        return otherwise
    return min(max(place + size if place < 0 else place, 0), size)


def _is_zero(node: Node) -> bool:
    if node.target in ZEROS:
        return True
    filled = node.target in FULL and len(node.args) > 1
    return filled and isinstance(node.args[1], int | float) and node.args[1] == 0


def _alike(node: Node, *terms: Node) -> bool:
    """Whether all are tensors of one size and type, so that adding is nothing but adding."""
    whole: Any = node.meta.get("val")
    values: list[Any] = [t.meta.get("val") for t in terms]
    if not all(isinstance(v, torch.Tensor) for v in (whole, *values)):
        return False
    return all(v.dtype == whole.dtype and _same_sizes(v.shape, whole.shape) for v in values)


def _same_sizes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether sizes are the same by what is written, so that no guard is made for it."""
    return len(a) == len(b) and all(str(m) == str(n) for m, n in zip(a, b, strict=True))


def _is_in_larger(node: Node, sums: dict[Node, SumOfParts]) -> bool:
    """Whether the one reader of a sum goes on adding parts to it."""
    readers = _readers(node)
    if len(readers) != 1 or readers[0] not in sums:
        return False
    mine = {value for part in sums[node].parts for value in part.values}
    return mine <= {value for part in sums[readers[0]].parts for value in part.values}


def _readers(node: Node) -> list[Node]:
    """Who looks at the values of a node, and not only at its size or type."""
    return [user for user in node.users if user.target not in ZEROS | FULL]


def _write(root: Node, found: SumOfParts) -> None:
    """Put the parts of a sum one behind the other, instead of the sum."""
    with root.graph.inserting_before(root):
        pieces = list(_pieces(root, found))
        total = pieces[0]
        if len(pieces) > 1:
            total = _called(root, aten.cat.default, pieces, found.dim)
        if found.base is not None:
            total = _called(root, aten.add.Tensor, found.base, total)
    root.replace_all_uses_with(total)
    total.meta = dict(root.meta)


def _pieces(root: Node, found: SumOfParts) -> Iterator[Node]:
    """The parts, and zeros where there is none, in the order in which they lie."""
    end, size = 0, found.zeros.meta["val"].shape[found.dim]
    for part in found.parts:
        if part.start > end:
            yield _called(root, aten.slice.Tensor, found.zeros, found.dim, end, part.start)
        value, *others = part.values
        for other in others:
            value = _called(root, aten.add.Tensor, value, other)
        if part.is_single:
            value = _called(root, aten.unsqueeze.default, value, found.dim)
        yield value
        end = part.stop
    if end < size:
        yield _called(root, aten.slice.Tensor, found.zeros, found.dim, end, size)


def _called(like: Node, target: Any, *args: Any) -> Node:
    """A call that stands for a part of what a node did."""
    made = like.graph.call_function(target, args)
    made.meta = {k: v for k, v in like.meta.items() if k != "tensor_meta"}
    made.meta["val"] = target(*torch.utils._pytree.tree_map(_value, args))
    return made


def _value(x: Any) -> Any:
    return x.meta["val"] if isinstance(x, Node) else x
