"""`flex_attention` as kernels of ours: what its node says becomes the description of a template.

Where a kernel would not do exactly what was asked for, the operator stays torch's, which computes
every score in memory, and the report says why.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch

from treadle.codegen.triton.flex.spec import CAPTURED, GRAD, SCORE, FlexSpec, Lists
from treadle.codegen.triton.flex.tiles import why_no_tile
from treadle.core.options import Options
from treadle.frontends.torch.lowering.calls import Holes, add_call, describe, target_name, template
from treadle.frontends.torch.lowering.flex_points import (
    COORDINATES,
    Given,
    captured_buffers,
    lower_points,
)
from treadle.frontends.torch.lowering.promotion import known_type
from treadle.frontends.torch.lowering.values import Index, Lazy, NotLowered, Realised
from treadle.index import Expr, as_expr, hint
from treadle.ir.types import DType
from treadle.runtime.hosts.torch_flex import FlexBackward, FlexForward, Lengths, Lie
from treadle.runtime.library_calls import LibraryCall
from treadle.runtime.triton_kernels import GpuDevice

if TYPE_CHECKING:
    from treadle.frontends.torch.lowering.graph import GraphLowering

TYPES = (DType.F16, DType.BF16, DType.F32)
WHOLE_SEQUENCE = 1 << 20
"""Blocks so large stand for no blocks at all."""
MISTAKES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip
"""What a lowering may raise that does not know the graph it is in."""
OPERATORS = ("flex_attention", "flex_attention_backward")


@dataclass(frozen=True)
class FlexKernels:
    """What kernels of attention are made with; `refusal` says why there are none."""

    options: Options
    device: GpuDevice | None
    refusal: str | None = None


def is_flex(node: Any) -> bool:
    """Whether a node is attention with functions inside, forward or backward."""
    is_operator = isinstance(node.target, torch._ops.HigherOrderOperator)
    return is_operator and str(node.target) in OPERATORS


def add_flex(graph: GraphLowering, node: Any) -> Any:
    """The value of an attention node: by a template, or as a call of torch's own operator."""
    try:
        if graph.flex is None or node.name in graph.banned:
            raise NotLowered("no lowering")
        if graph.flex.refusal is not None:
            raise NotLowered(graph.flex.refusal)
        kind = _Forward if str(node.target) == OPERATORS[0] else _Backward
        return kind(graph, node, graph.flex).add()
    except NotLowered as e:
        reason = e.reason
    except MISTAKES as e:
        reason = f"its lowering fails: {type(e).__name__}: {e}"
        graph.out.crashes.append((str(node.target), reason))
    graph.out.fallbacks.append((str(node.target), reason))
    return add_call(graph, node)


class FlexNode:
    """One attention node: its tensors, blocks and functions, checked."""

    mask_at, scale_at, captured_at = 4, 5, 7

    def __init__(self, graph: GraphLowering, node: Any, kernels: FlexKernels) -> None:
        self.graph, self.node, self.kernels = graph, node, kernels
        self.holes = Holes()
        self.query, self.key, self.value = [self.tensor(a) for a in node.args[:3]]
        self.mask: tuple[Any, ...] = tuple(node.args[self.mask_at])
        self.blocks = [said_now(x) for x in self.mask[-3:-1]]
        if len(self.mask) < 13:
            raise NotLowered(f"a mask of {len(self.mask)} parts, which this torch alone knows")
        scores, masks = node.args[self.captured_at : self.captured_at + 2]
        self.captured = [*scores, *masks]
        self.buffers = captured_buffers([self._in_memory(a) for a in self.captured])
        self.of_score = self.buffers[: len(scores)]
        self.of_mask = self.buffers[len(scores) :]
        self._check()

    # -- what it is given ----------------------------------------------------------------------
    def tensor(self, arg: Any) -> Realised:
        """An argument in memory."""
        value = self.graph.value(arg)
        if not isinstance(value, Lazy | Realised):
            raise NotLowered("an argument exists at run time only")
        return self.graph.realise(value, arg.name)

    def _in_memory(self, arg: Any) -> Any:
        if not isinstance(arg, torch.fx.Node):
            return arg
        value = self.graph.value(arg)
        return self.graph.realise(value, arg.name) if isinstance(value, Lazy) else value

    def _check(self) -> None:
        kinds = {x.dtype for x in (self.query, self.key, self.value)}
        if len(kinds) != 1 or not kinds <= set(TYPES):
            raise NotLowered(f"tensors of {', '.join(sorted(map(str, kinds)))}")
        if any(len(x.sizes) != 4 for x in (self.query, self.key, self.value)):
            raise NotLowered("tensors that have not four dimensions")
        heads = [x.sizes[1].value for x in (self.query, self.key)]
        dims = [x.sizes[3].value for x in (self.query, self.value)]
        if None in (*heads, *dims):
            raise NotLowered("heads whose number or size is known at run time only")
        if not heads[1] or heads[0] % heads[1]:  # type: ignore[operator]
            raise NotLowered("query heads that are no multiple of the others")
        if not isinstance(self.node.args[self.scale_at], float | int):
            raise NotLowered("a scale that is known at run time only")
        asked = self.node.args[self.scale_at + 1].get("BACKEND", "AUTO")
        if asked == "FLASH":
            raise NotLowered("kernel_options ask for another backend, FLASH")

    @property
    def extents(self) -> Index:
        """Batches, query heads, queries, keys."""
        return (*self.query.sizes[:3], self.key.sizes[2])

    def function(self, arg: Any) -> Any:
        """The graph of a function."""
        found = self.graph.value(arg)
        if not isinstance(found, torch.fx.GraphModule):
            raise NotLowered("a function that torch has not traced")
        return found

    # -- blocks ----------------------------------------------------------------------------------
    def lists(self, first: int) -> tuple[Lists | None, list[Any]]:
        """How blocks are listed from part `first` of the mask on, and the nodes of the lists."""
        block_q, block_kv = self.blocks
        if min(block_q, block_kv) >= WHOLE_SEQUENCE:
            return None, []
        nodes = [x for x in self.mask[first : first + 4] if x is not None]
        if len(nodes) not in (2, 4) or not all(isinstance(x, torch.fx.Node) for x in nodes):
            raise NotLowered("a mask without lists of its blocks")
        sizes = [self.tensor(x).sizes for x in nodes]
        if any(self.tensor(x).dtype is not DType.I32 for x in nodes):
            raise NotLowered("lists of blocks that are no i32")
        if any(a[:2] != sizes[0][:2] for a in sizes):
            raise NotLowered("lists of blocks for different batches or heads")
        shared = [self._is_shared(sizes[0][d], self.query.sizes[d]) for d in (0, 1)]
        along, block = (2, block_q) if first == 2 else (3, block_kv)
        rows, length = sizes[0][2].value, self.extents[along].value
        if rows is not None and length is not None and rows * block < length:
            raise NotLowered("a mask that is shorter than what it masks")
        has_full = len(nodes) == 4
        return Lists(block_q, block_kv, has_full, not shared[0], not shared[1]), nodes

    def _is_shared(self, listed: Expr, of: Expr) -> bool:
        """Whether one list is for all batches or heads."""
        if listed.value != 1 and listed is not of:
            raise NotLowered(f"a mask of {listed} batches or heads for {of}")
        return listed.value == 1

    # -- its description --------------------------------------------------------------------------
    def spec(self, lists: Lists | None, score: Any, mask: Any, joint: Any = None) -> FlexSpec:
        """The template's description, with functions lowered before."""
        heads, kv_heads = self.query.sizes[1].value, self.key.sizes[1].value
        dim, v_dim = self.query.sizes[3].value, self.value.sizes[3].value
        assert heads and kv_heads and dim and v_dim, "they were checked"  # noqa: PT018
        found = FlexSpec(
            dtype=self.query.dtype,
            qk_dim=dim,
            v_dim=v_dim,
            heads=heads,
            group=heads // kv_heads,
            one_kv_batch=self._is_one_batch(),
            scale=float(self.node.args[self.scale_at]),
            precision=f32_products(),
            lists=lists,
            score=None if score is None or score.is_score else score,
            mask=None if mask is None or mask.is_true else mask,
            joint=joint,
        )
        reason = why_no_tile(found)
        if reason is not None:
            raise NotLowered(reason)
        return found

    def _is_one_batch(self) -> bool:
        own, other = self.query.sizes[0], self.key.sizes[0]
        if own is other:
            return False
        if other.value != 1:
            raise NotLowered("keys of other batches than queries")
        return True

    def score_and_mask(self, score: Any) -> tuple[Any, Any]:
        """The two functions as bodies."""
        pairs = (SCORE, *COORDINATES)
        given = Given(pairs, self.of_score, self.extents)
        changed = lower_points(self.graph, self.function(score), given, DType.F32)
        given = Given(COORDINATES, self.of_mask, self.extents)
        counts = lower_points(self.graph, self.function(self.mask[-1]), given, DType.BOOL)
        return changed, counts

    # -- the call ----------------------------------------------------------------------------------
    def rest(self, spec: FlexSpec) -> tuple[Any, ...]:
        """Arguments that functions need: tensors, their strides, sizes."""
        chosen = [int(name.removeprefix(CAPTURED)) for name in spec.captured]
        tensors = [self.captured[k] for k in chosen]
        lies = [list(self.buffers[k].layout.strides) for k in chosen]
        return tensors, lies, list(spec.sizes)

    def add_template(self, function: Any, args: Any, wanted: Sequence[int]) -> list[Any]:
        """Append the operation; gives the values of the results that somebody wants."""
        graph, node, holes = self.graph, self.node, self.holes
        filled = template(graph, args, holes)
        call = LibraryCall(function, filled, {}, is_single=False)
        call.into, call.into_any = function.into, True
        values: list[Any] = [None] * len(node.meta["val"])
        writes = []
        for position in wanted:
            val = node.meta["val"][position]
            sizes = graph.sizes.exprs(val.shape)
            kind, name = known_type(val.dtype), graph.fresh(node.name)
            assert kind is not None, "its results are floats"
            buffer = graph.builder.buffer(name, kind, sizes, graph.dense(sizes, val))
            values[position] = Realised(buffer, buffer.layout)
            call.results.append((position, name, False))
            writes.append(name)
        name = graph.fresh_op(node.name)
        about = sha256(repr((function.spec, wanted)).encode()).hexdigest()[:16]
        graph.builder.template(
            target_name(node.target),
            holes.args,
            writes=writes,
            name=name,
            origins=graph.origins,
            attrs={"call": f"{describe(filled)} {about}"},
            has_epilogue_slot=False,
        )
        graph.calls[name] = call
        graph.out.lowered += 1
        return values

    def wanted(self, count: int) -> list[int]:
        """Which of the first results somebody reads."""
        users = self.node.users
        if not all(u.target is operator.getitem for u in users):
            return list(range(count))
        read = {u.args[1] for u in users}
        return [k for k in range(count) if k in read]

    def strides(self, position: int) -> Index:
        """The strides of a result as it is allocated."""
        val = self.node.meta["val"][position]
        return self.graph.dense(self.graph.sizes.exprs(val.shape), val)


class _Forward(FlexNode):
    """The forward operator."""

    def add(self) -> tuple[Any, ...]:
        """The values of its results."""
        node = self.node
        lists, listed = self.lists(2)
        spec = self.spec(lists, *self.score_and_mask(node.args[3]))
        count = len(node.meta["val"])
        wanted = self.wanted(count)
        if not wanted:
            raise NotLowered("nobody reads what it gives")
        function = FlexForward(spec, self.kernels.options, self.kernels.device, wanted)
        strides = [list(self.strides(0))]
        args = (*node.args[:3], listed, *self.rest(spec), strides)
        found = self.add_template(function, args, wanted)
        tensors = [self.query, self.key, self.value]
        likely = likely_lengths(self, spec, tensors, [listed], strides)
        if likely is not None and self.kernels.device is not None:
            function.bind(likely)
        return tuple(found)


class _Backward(FlexNode):
    """The backward operator."""

    mask_at, scale_at, captured_at = 9, 10, 12

    def add(self) -> tuple[Any, ...]:
        """The values of its results."""
        node = self.node
        if self._is_one_batch():
            raise NotLowered("gradients of keys that several batches look at")
        lists, listed = self.lists(2)
        turned, by_keys = self.lists(6)
        score, mask = self.score_and_mask(node.args[7])
        joint = None if score.is_score else self._joint(node.args[8])
        spec = self.spec(lists, score, mask, joint)
        kernels = self.kernels
        function = FlexBackward(spec, replace(spec, lists=turned), kernels.options, kernels.device)
        strides = [list(self.strides(k)) for k in range(3)]
        q, k, v, out, lse, slope, lse_slope = node.args[:7]
        tensors, sums = [q, k, v, out, slope], [lse, lse_slope]
        args = (tensors, sums, listed, by_keys, *self.rest(spec), strides)
        found = self.add_template(function, args, range(3))
        lies = [self.tensor(x) for x in (q, k, v, out, out if slope is None else slope)]
        likely = likely_lengths(self, spec, lies, [listed, by_keys], strides)
        if likely is not None and kernels.device is not None:
            function.bind(likely, lse_slope is not None)
        return (*found[:3], (None,) * len(node.args[12]))

    def _joint(self, arg: Any) -> Any:
        """The gradient of a score as a body; nothing else may have one."""
        gm = self.function(arg)
        (output,) = [n for n in gm.graph.nodes if n.op == "output"]
        if any(x is not None for x in output.args[0][1:]):
            raise NotLowered("a captured tensor has a gradient")
        given = Given((SCORE, *COORDINATES, GRAD), self.of_score, self.extents)
        found = lower_points(self.graph, gm, given, DType.F32)
        if found is None:
            raise NotLowered("its function does not look at the score")
        return found


def likely_lengths(
    node: FlexNode,
    spec: FlexSpec,
    tensors: Sequence[Realised],
    lists: Sequence[Sequence[Any]],
    results: Sequence[Sequence[Expr]],
) -> Lengths | None:
    """What the first run will most likely see: kernels for it are compiled from now on."""

    def numbers(several: Sequence[Any]) -> tuple[int, ...]:
        return tuple([hint(as_expr(n)) or 0 for n in several])

    ways = [Lie(numbers(x.sizes), numbers(x.layout.strides)) for x in tensors]
    if any(way.strides[3] != 1 for way in ways):
        return None
    widths: list[Any] = []
    for several in lists:
        widths += [node.tensor(x).sizes[-1] for x in (*several[1::2], *several[:1])]
    strides = tuple([numbers(s) for s in results])
    return Lengths(tuple(ways), strides, numbers(widths), numbers(spec.sizes))


def said_now(size: Any) -> int:
    """A size that kernels are written for; torch remembers that nothing holds for another one."""
    val = size.meta.get("val") if isinstance(size, torch.fx.Node) else size
    if not isinstance(val, int | torch.SymInt):
        raise NotLowered("blocks whose size is known at run time only")
    return int(val)


def f32_products() -> str:
    """How torch is told to multiply f32."""
    try:
        return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    except RuntimeError:  # told in two ways that contradict each other
        return "ieee"
