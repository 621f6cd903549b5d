"""Complex numbers inside a graph are pairs of real ones, which loops can compute.

    c = view_as_complex(x)        x, whose last dimension has two elements
    d = c * polar(r, a)           stack((re*cos - im*sin, re*sin + im*cos), -1)
    view_as_real(d)               that stack

So are rotary positions written as products of complex numbers: one loop instead of calls with
memory of their own. A graph that does anything else with complex numbers, or gives some to its
caller, stays as it is; complex arguments are read as pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from treadle.frontends.torch.capture.other_strides import GiveUp, GraphWriter, same_strides

aten = torch.ops.aten
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The types of complex numbers that are taken apart, with those of their parts."""


def compute_with_pairs(gm: GraphModule) -> bool:
    """Rewrite a functional graph without complex numbers inside; whether that was possible."""
    if not _may_be_pairs(gm.graph):
        return False
    try:
        graph = _Pairs(gm.graph).rewritten()
    except (GiveUp, RuntimeError, ValueError, IndexError):  # what torch says of wrong sizes
        return False
    graph.eliminate_dead_code()
    graph.lint()
    gm.graph = graph
    gm.recompile()
    return True


def _may_be_pairs(graph: Graph) -> bool:
    """Whether there are complex numbers, and nothing is done with them that pairs cannot do."""
    found = [n for n in graph.nodes if is_complex(n)]
    if not any(n.op == "call_function" for n in found):
        return False
    if any(n.meta["val"].dtype not in REAL for n in found):
        return False
    made = [n for n in found if n.op != "placeholder"]
    users = {user for n in found for user in n.users}
    return all(n.target in PAIRS for n in [*made, *users])


def is_complex(node: Any) -> bool:
    """Whether a node stands for a tensor of complex numbers."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


class _Pairs(GraphWriter):
    """Writes pairs where complex numbers were."""

    def __init__(self, old: Graph) -> None:
        super().__init__(old)
        self._pair_of: dict[Node, Node] = {}
        self._number_of: dict[Node, complex] = {}
        """What nodes stand for that were given a number: conjugates, in the graph of a backward."""

    def _is_special(self, node: Node) -> bool:
        if node.op != "call_function":
            return False
        return is_complex(node) or any(map(is_complex, node.all_input_nodes))

    def _write(self, node: Node) -> None:
        if node.target in CONJUGATES and not isinstance(node.args[0], Node):
            number: Any = node.args[0]
            self._number_of[node] = complex(number).conjugate()
            return
        made: Node = PAIRS[node.target](self, node)
        before = node.meta["val"]
        if is_complex(node):
            whole = (*before.shape, 2)
            if made.meta["val"].shape != whole or made.meta["val"].dtype != REAL[before.dtype]:
                raise GiveUp(f"{node.name} is of another form as pairs")
            self._pair_of[node] = made
            return
        self._of[node] = made
        if not same_strides(made.meta["val"], before):
            self._before[made] = before

    def pair(self, node: Any) -> Node:
        """The pairs that stand for complex numbers, which may be an argument of the graph."""
        if not is_complex(node) or node in self._number_of:
            raise GiveUp(f"{node} is a number, or real")
        if node not in self._pair_of:
            self._pair_of[node] = self.call(node, aten.view_as_real_copy.default, self._of[node])
        return self._pair_of[node]

    def real(self, value: Any) -> Any:
        """An argument that is no tensor of complex numbers."""
        return self._mapped(value)

    def known(self, value: Any) -> Any:
        """An argument, or the number it stands for."""
        return self._number_of.get(value, value) if isinstance(value, Node) else value

    def call(self, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A call for a part of what a node did."""
        made = self.new.call_function(target, args, kwargs)
        given = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
        made.meta = {k: v for k, v in like.meta.items() if k != "tensor_meta"}
        with self._mode, torch.no_grad():
            made.meta["val"] = target(*given, **kwargs)
        return made

    def parts(self, like: Node, pair: Node) -> tuple[Node, Node]:
        """Real and imaginary parts of pairs."""
        first, second = [self.call(like, aten.select.int, pair, -1, k) for k in range(2)]
        return first, second

    def stacked(self, like: Node, re: Node, im: Node) -> Node:
        """Pairs of parts."""
        return self.call(like, aten.stack.default, [re, im], -1)


def _seen(p: _Pairs, node: Node) -> Node:
    given: Node = p.real(node.args[0])
    return given


def _shown(p: _Pairs, node: Node) -> Node:
    return p.pair(node.args[0])


def _of_parts(p: _Pairs, node: Node) -> Node:
    parts: list[Node] = list(p.real(node.args))
    sizes = node.meta["val"].shape
    for k, part in enumerate(parts):
        if part.meta["val"].shape != sizes:
            parts[k] = p.call(node, aten.expand.default, part, list(sizes))
    return p.stacked(node, *parts)


def _polar(p: _Pairs, node: Node) -> Node:
    size, angle = p.real(node.args)
    turned = [p.call(node, function, angle) for function in (aten.cos.default, aten.sin.default)]
    re, im = [p.call(node, aten.mul.Tensor, size, one) for one in turned]
    return p.stacked(node, re, im)


def _conjugate(p: _Pairs, node: Node) -> Node:
    re, im = p.parts(node, p.pair(node.args[0]))
    return p.stacked(node, re, p.call(node, aten.neg.default, im))


def _product(p: _Pairs, node: Node) -> Node:
    a, b = map(p.known, node.args)
    if not (is_complex(a) and is_complex(b)):
        return _scaled(p, node)
    (ar, ai), (br, bi) = [p.parts(node, p.pair(x)) for x in (a, b)]

    def times(x: Node, y: Node) -> Node:
        return p.call(node, aten.mul.Tensor, x, y)

    re = p.call(node, aten.sub.Tensor, times(ar, br), times(ai, bi))
    im = p.call(node, aten.add.Tensor, times(ar, bi), times(ai, br))
    return p.stacked(node, re, im)


def _scaled(p: _Pairs, node: Node) -> Node:
    """A product or quotient of complex and real numbers."""
    a, b = map(p.known, node.args)
    if not is_complex(a) and not isinstance(b, complex):
        if node.target is not aten.mul.Tensor:
            raise GiveUp(f"{node.name} divides by complex numbers")
        a, b = b, a
    if isinstance(b, complex):
        return _turned(p, node, a, b)
    if is_complex(b):
        raise GiveUp(f"{node.name} divides by complex numbers")
    factor = p.real(b)
    if isinstance(factor, Node) and factor.meta["val"].dim():  # without, its type counts for less
        factor = p.call(node, aten.unsqueeze.default, factor, -1)
    return p.call(node, node.target, p.pair(a), factor)


def _turned(p: _Pairs, node: Node, a: Any, b: complex) -> Node:
    """A product with a complex number that is known."""
    if node.target not in (aten.mul.Tensor, aten.mul.Scalar):
        raise GiveUp(f"{node.name} divides by a complex number")
    if not is_complex(a):
        x = p.call(node, aten._to_copy.default, p.real(a), dtype=REAL[node.meta["val"].dtype])
        parts = [p.call(node, aten.mul.Tensor, x, k) for k in (b.real, b.imag)]
        return p.stacked(node, *parts)
    re, im = p.parts(node, p.pair(a))

    def sum_of(x: Node, by: float, y: Node, and_by: float) -> Node:
        both = [p.call(node, aten.mul.Tensor, z, k) for z, k in ((x, by), (y, and_by))]
        return p.call(node, aten.add.Tensor, *both)

    return p.stacked(node, sum_of(re, b.real, im, -b.imag), sum_of(im, b.real, re, b.imag))


def _direction(p: _Pairs, node: Node) -> Node:
    """Numbers of size 1, or 0 where there is none."""
    pair = p.pair(node.args[0])
    size = p.call(node, aten.hypot.default, *p.parts(node, pair))
    nothing = p.call(node, aten.eq.Scalar, size, 0)
    size = p.call(
        node,
        aten.add.Tensor,
        size,
        p.call(node, aten._to_copy.default, nothing, dtype=REAL[node.meta["val"].dtype]),
    )
    return p.call(node, aten.div.Tensor, pair, p.call(node, aten.unsqueeze.default, size, -1))


def _each(p: _Pairs, node: Node) -> Node:
    """What happens to both parts alike: all tensors it is given are complex."""
    given: Any = node.args
    if node.kwargs or any(not is_complex(x) for x in given):
        raise GiveUp(f"{node.name} is given real numbers, too")
    return p.call(node, node.target, *map(p.pair, given))


def _copied(p: _Pairs, node: Node) -> Node:
    return p.call(node, aten.clone.default, p.pair(node.args[0]))


def _as_sized(p: _Pairs, node: Node) -> Node:
    sizes: Any = node.args[1]
    return p.call(node, node.target, p.pair(node.args[0]), [*p.real(sizes), 2])


def _along(*places: int) -> Callable[[_Pairs, Node], Node]:
    """An operator on some dimensions, by where in its arguments they stand."""

    def write(p: _Pairs, node: Node) -> Node:
        given: list[Any] = list(p.real(node.args[1:]))
        dims = max(_dims(node.args[0]) + (node.target is aten.unsqueeze.default), 1)
        for k in places:
            if k - 1 < len(given):
                given[k - 1] %= dims
        if node.kwargs or (places == (1,) and not given):
            raise GiveUp(f"{node.name} has arguments by name, or none")
        return p.call(node, node.target, p.pair(node.args[0]), *given)

    return write


def _permuted(p: _Pairs, node: Node) -> Node:
    order: Any = node.args[1]
    dims = _dims(node.args[0])
    return p.call(node, node.target, p.pair(node.args[0]), [*[d % dims for d in order], dims])


def _summed(p: _Pairs, node: Node) -> Node:
    over: Any = node.args[1] if len(node.args) > 1 else None
    dims = _dims(node.args[0])
    if node.kwargs or not dims:
        raise GiveUp(f"{node.name} has arguments by name, or nothing to sum up")
    along = [d % dims for d in over] if over else list(range(dims))
    return p.call(node, node.target, p.pair(node.args[0]), along, *node.args[2:])


def _joined(p: _Pairs, node: Node) -> Node:
    several: Sequence[Any] = node.args[0]  # type: ignore[assignment]
    if not all(map(is_complex, several)):
        raise GiveUp(f"{node.name} joins real numbers, too")
    if len({_dims(x) for x in several}) > 1:
        raise GiveUp(f"{node.name} is given something empty besides")
    along: Any = node.args[1] if len(node.args) > 1 else 0
    return p.call(node, node.target, [p.pair(x) for x in several], along % _dims(several[0]))


def _dims(node: Any) -> int:
    return int(node.meta["val"].dim())


CONJUGATES = (aten._conj.default, aten.conj_physical.default, aten._conj_physical.default)
PAIRS: Mapping[Any, Callable[[_Pairs, Node], Node]] = {
    aten.view_as_complex.default: _seen,
    aten.view_as_real.default: _shown,
    aten.complex.default: _of_parts,
    aten.polar.default: _polar,
    **dict.fromkeys(CONJUGATES, _conjugate),
    aten.mul.Tensor: _product,
    aten.mul.Scalar: _scaled,
    aten.div.Tensor: _scaled,
    aten.div.Scalar: _scaled,
    aten.sgn.default: _direction,
    aten.add.Tensor: _each,
    aten.sub.Tensor: _each,
    aten.neg.default: _each,
    aten.clone.default: _copied,
    aten.resolve_conj.default: _copied,
    aten.view.default: _as_sized,
    aten._unsafe_view.default: _as_sized,
    aten.expand.default: _as_sized,
    aten.unsqueeze.default: _along(1),
    aten.squeeze.dim: _along(1),
    aten.select.int: _along(1),
    aten.slice.Tensor: _along(1),
    aten.transpose.int: _along(1, 2),
    aten.permute.default: _permuted,
    aten.sum.dim_IntList: _summed,
    aten.cat.default: _joined,
}
"""How what is done with complex numbers is done with pairs."""
