"""Products on a GPU whose lines no 16 bytes divide are made of lines that are a little longer.

    addmm(b, x, t(w))        w of 30,522 rows: each line of the result begins somewhere else
    ->  slice(addmm(pad(b), x, t(pad(w))), 0, 30522)        lines of 30,528

    mm(g, w)                 the gradient of x; mm(t(g), x) that of w
    ->  mm(pad(g), pad(w));  slice(mm(t(pad(g)), x), 0, 30522)

The library copies 16 bytes at a time, and takes other kernels where lines begin between them: 2.5
to 8 times as long on an H200. What is added are zeros, so that every sum is what it was. A gradient
that a kernel makes is written with longer lines to begin with, and read so by all others; factors
that are there already are copied, once for all products, if that takes less time than it saves.
What the graph gives back is copied to the lines it should have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten
DEVICES = frozenset({"cuda"})
NARROW = frozenset({torch.float16, torch.bfloat16})
EVEN = 8
"""Elements of 16 bits that make 16 bytes."""
FEWEST_FLOPS = 1 << 30
"""Of a product that takes longer than to begin the copies."""
FLOPS_A_BYTE = 200
"""So many operations are spared about as long as it takes to move a byte."""
PRODUCTS = frozenset({aten.mm.default, aten.addmm.default})
TURNS = frozenset({aten.t.default, aten.permute.default, aten.transpose.int})
READERS = frozenset(
    {aten.sum.dim_IntList, aten.sum.default, aten.mean.dim, aten.amax.default, aten.amin.default}
    | {aten.max.dim, aten.argmax.default, aten.gather.default, aten.var_mean.correction}
)
"""Operators that are not pointwise, and take values as they are, wherever they lie."""
VIEWS = frozenset({aten.view.default, aten._unsafe_view.default, aten.reshape.default})


def even_out_products(gm: GraphModule) -> int:
    """Rewrite the products of a functional graph; gives how many."""
    mode: Any = torch._guards.detect_fake_mode(
        [n.meta.get("val") for n in gm.graph.find_nodes(op="placeholder")]
    )
    if mode is None:
        return 0
    products = [n for n in gm.graph.nodes if n.target in PRODUCTS]
    evening = _Evening(gm)
    with mode, torch.no_grad():
        count = sum([evening.product(n) for n in products])
    if count:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return count


@dataclass(frozen=True)
class _Factor:
    """A matrix as it lies: lines of memory, and whether the product sees them turned."""

    lines: Node
    is_turned: bool

    @property
    def sizes(self) -> tuple[int, int]:
        """As the product sees it."""
        n, m = self.lines.meta["val"].shape
        return (m, n) if self.is_turned else (n, m)


class _Evening:
    """One graph on its way to products of even lines."""

    def __init__(self, gm: GraphModule) -> None:
        self.graph = gm.graph
        self.given = set(gm.graph.output_node().all_input_nodes)
        self.longer: dict[tuple[Node, int, int], Node] = {}

    def product(self, node: Node) -> bool:
        """Rewrite one product, if that pays."""
        if node.kwargs or not _is_fitting(node):
            return False
        x, w = (_factor(a) for a in node.args[-2:])
        if x is None or w is None:
            return False
        (m, k), (_, n) = x.sizes, w.sizes
        more_m = _missing(m) if x.is_turned else 0
        more_k = _missing(k) if not x.is_turned or w.is_turned else 0
        more_n = _missing(n)
        if not (more_m or more_k or more_n):
            return False
        is_copied = bool(more_n) and (self._is_given(node) or not _may_have_lines(node, n + more_n))
        padded = [f.lines for f, more in ((x, more_m or more_k), (w, more_k or more_n)) if more]
        if not self._pays((m, k, n), padded + ([node] if is_copied else [])):
            return False
        self._rewrite(node, x, w, (more_m, more_k, more_n), is_copied)
        return True

    def _pays(self, sizes: tuple[int, int, int], padded: Sequence[Node]) -> bool:
        m, k, n = sizes
        # What kernels make, they write with longer lines; what is there is read and written again.
        moved = [a.meta["val"] for a in padded if not _is_made_by_kernels(a)]
        size = sum(2 * val.numel() * val.element_size() for val in moved)
        return bool(2 * m * k * n >= max(FEWEST_FLOPS, FLOPS_A_BYTE * size))

    def _is_given(self, node: Node) -> bool:
        """Whether the graph gives back the result, or a view of it."""
        if node in self.given:
            return True
        return any(self._is_given(u) for u in node.users if u.target in (*VIEWS, *TURNS))

    def _rewrite(
        self, node: Node, x: _Factor, w: _Factor, more: tuple[int, int, int], is_copied: bool
    ) -> None:
        more_m, more_k, more_n = more
        factors = [self._factor(x, more_m, more_k, node), self._factor(w, more_k, more_n, node)]
        with self.graph.inserting_before(node):
            bias = list(node.args[:-2])
            if bias and more_n and bias[0].meta["val"].shape[0] != 1:  # type: ignore[union-attr]
                bias = [_call(node, aten.constant_pad_nd.default, bias[0], [0, more_n], 0.0)]
            made = _call(node, node.target, *bias, *factors)
            for d, size in enumerate(node.meta["val"].shape):
                if made.meta["val"].shape[d] != size:
                    made = _call(node, aten.slice.Tensor, made, d, 0, size)
            if is_copied:
                made = _call(node, aten.clone.default, made, memory_format=torch.contiguous_format)
        node.replace_all_uses_with(made)
        _update_views(made)

    def _factor(self, f: _Factor, rows: int, columns: int, node: Node) -> Node:
        """The factor with more rows and columns of zeros, as the product sees it."""
        if f.is_turned:
            rows, columns = columns, rows
        lines = self._pad(f.lines, rows, columns, node) if rows or columns else f.lines
        if not f.is_turned:
            return lines
        with self.graph.inserting_before(node):
            return _call(node, aten.permute.default, lines, [1, 0])

    def _pad(self, lines: Node, rows: int, columns: int, node: Node) -> Node:
        key = (lines, rows, columns)
        if key in self.longer:
            return self.longer[key]
        is_made = _is_made_by_kernels(lines)
        # What is made is made so; what is there may not be there before it is multiplied (FSDP).
        place = self.graph.inserting_after if is_made else self.graph.inserting_before
        with place(lines if is_made else node):
            made = _call(node, aten.constant_pad_nd.default, lines, [0, columns, 0, rows], 0.0)
        self.longer[key] = made
        if is_made:
            self._read_instead(lines, made, node)
        return made

    def _read_instead(self, lines: Node, made: Node, node: Node) -> None:
        """Whoever computes with what was padded reads the longer lines: nothing else is written."""
        readers = [u for u in lines.users if u is not made and _computes(u)]
        if not readers:
            return
        with self.graph.inserting_after(made):
            part = made
            for d, size in enumerate(lines.meta["val"].shape):
                if part.meta["val"].shape[d] != size:
                    with self.graph.inserting_after(part):
                        part = _call(node, aten.slice.Tensor, part, d, 0, size)
        for reader in readers:
            reader.replace_input_with(lines, part)


def _call(like: Node, target: Any, *args: Any, **named: Any) -> Node:
    """A call that stands for a part of what a node did."""
    made = like.graph.call_function(target, args, named)
    given = [a.meta["val"] if isinstance(a, Node) else a for a in args]
    made.meta = {k: v for k, v in like.meta.items() if k != "tensor_meta"}
    made.meta["val"] = target(*given, **named)
    return made


def _factor(a: Any) -> _Factor | None:
    """A matrix whose lines follow each other in memory, or are seen turned; None otherwise."""
    is_turned = False
    while a.op == "call_function" and a.target in TURNS and a.meta["val"].dim() == 2:
        is_turned ^= a.target is aten.t.default or _swaps(a)
        a = a.args[0]
    val = a.meta["val"]
    known = all(isinstance(n, int) for n in (*val.shape, *val.stride()))
    return _Factor(a, is_turned) if known and val.dim() == 2 and val.is_contiguous() else None


def _swaps(turn: Node) -> bool:
    """Whether a view of a matrix turns it, or leaves its dimensions where they are."""
    given = turn.args[1:]
    order: Sequence[Any] = given[0] if turn.target is aten.permute.default else given  # type: ignore[assignment]
    first, second = (int(d) % 2 for d in order)
    return first > second if turn.target is aten.permute.default else first != second


def _missing(n: int) -> int:
    return -n % EVEN


def _is_fitting(node: Node) -> bool:
    tensors = [a.meta["val"] for a in node.args]  # type: ignore[union-attr]
    bias = tensors[0] if len(tensors) == 3 else None
    if bias is not None and (bias.dim() != 1 or not isinstance(bias.shape[0], int)):
        return False
    return all(bool(t.dtype in NARROW and t.device.type in DEVICES) for t in tensors)


def _is_made_by_kernels(node: Node) -> bool:
    """Whether a value comes out of what is computed point by point, and not out of a call."""
    while node.op == "call_function" and node.target in VIEWS:
        (node,) = node.all_input_nodes
    return _is_pointwise(node)


def _is_pointwise(node: Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    return torch.Tag.pointwise in node.target.tags or node.target is aten._to_copy.default


def _computes(node: Node) -> bool:
    """Whether a node takes values as they are, wherever they lie."""
    return _is_pointwise(node) or node.target in READERS


def _may_have_lines(node: Node, line: int) -> bool:
    """Whether all that look at a result could look at lines that are longer."""
    val = node.meta["val"]
    longer = torch.empty_strided(val.shape, (line, 1), dtype=val.dtype, device=val.device)
    return all(seen is not None for seen in _looks(node, longer))


def _looks(node: Node, val: Any) -> Iterator[Any]:
    """What views of a value would be, one behind the other; None for one that cannot be."""
    for user in node.users:
        if user.target in VIEWS:
            try:
                seen = aten.view.default(val, user.args[1])
            except (RuntimeError, ValueError):
                yield None
                continue
            yield seen
            yield from _looks(user, seen)
        elif user.target in TURNS:
            yield user.target(val, *user.args[1:])  # products take it as it is
            yield from (None for u in user.users if u.target not in PRODUCTS)
        elif not (_computes(user) or user.target in PRODUCTS):
            yield None


def _update_views(made: Node) -> None:
    """What is known about views of a result that lies otherwise now."""
    for user in made.users:
        if user.target in VIEWS:
            user.meta["val"] = aten.view.default(made.meta["val"], user.args[1])
            user.target = aten.view.default
            _update_views(user)
        elif user.target in TURNS:
            user.meta["val"] = user.target(made.meta["val"], *user.args[1:])
