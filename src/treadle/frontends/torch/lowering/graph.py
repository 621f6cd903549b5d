"""A captured ATen graph becomes a program: every node a computation, a view, or a call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from treadle.core.unused import unused_name
from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering.calls import add_call, held
from treadle.frontends.torch.lowering.collectives import add_wait, is_wait, without_told_places
from treadle.frontends.torch.lowering.devices import device_name, device_of
from treadle.frontends.torch.lowering.eager_types import refused_type
from treadle.frontends.torch.lowering.flex import FlexKernels, add_flex, is_flex
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.frontends.torch.lowering.node import Node
from treadle.frontends.torch.lowering.origins import origins_of
from treadle.frontends.torch.lowering.owners import ask_owners
from treadle.frontends.torch.lowering.parts import Compile
from treadle.frontends.torch.lowering.promotion import known_type, our_type
from treadle.frontends.torch.lowering.readers import (
    CONVERSIONS,
    is_multiplied_turned,
    is_used_later,
    looks_at_shape,
    shape_env_of,
    shown_twice,
)
from treadle.frontends.torch.lowering.realise import (
    CHEAP_OF_LITTLE,
    dense_strides,
    elements_asked,
    is_cheap,
    is_costly_to_repeat,
    is_repeated_around,
    is_spread,
    is_too_long,
    overlaps,
    realise,
    work_of,
    write_loop,
)
from treadle.frontends.torch.lowering.regions import write_out_regions
from treadle.frontends.torch.lowering.run_numbers import run_number
from treadle.frontends.torch.lowering.symbols import GraphSizes, shown_sizes
from treadle.frontends.torch.lowering.table import TABLE
from treadle.frontends.torch.lowering.values import (
    Index,
    Lazy,
    LoweringCrashed,
    NotLowered,
    Number,
    Opaque,
    Realised,
    Refusal,
    Tensor,
)
from treadle.index import Symbol, as_expr, hint
from treadle.ir.build import ProgramBuilder
from treadle.ir.change import moved_to
from treadle.ir.numerics import TORCH
from treadle.ir.program import Program
from treadle.ir.types import Layout
from treadle.runtime.hosts.torch_tensors import storage_key
from treadle.runtime.library_calls import LibraryCall


@dataclass
class Lowered:
    """A program and what running it on torch tensors needs besides."""

    kind: GraphKind
    program: Program
    calls: dict[str, LibraryCall]
    tensors: list[tuple[int, str]]
    """(position among the graph's inputs, buffer)."""
    objects: list[tuple[int, str]]
    """(position, name) of inputs that only calls look at."""
    numbers: list[tuple[int, str]]
    """(position, size) of inputs that are run-time sizes."""
    constants: dict[str, Any]
    """Tensors the graph holds itself, by buffer."""
    outputs: list[Any]
    """What is returned: views, names of objects, sizes, constants."""
    mutated: frozenset[str]
    """Inputs that change."""
    fallbacks: list[tuple[str, str]] = field(default_factory=list)
    """(overload, reason) of every call that stands for an operator without loops."""
    crashes: list[tuple[str, str]] = field(default_factory=list)
    """Those of them whose lowering raised an exception, which is a mistake in it."""
    lowered: int = 0
    """How many nodes became loops or views."""
    made_for: dict[str, str] = field(default_factory=dict)
    """The node that each copy or argument in memory was made for, by its buffer."""


def lower_graph(
    gm: torch.fx.GraphModule,
    kind: GraphKind = GraphKind.INFERENCE,
    donated: Sequence[int] = (),
    compile_part: Compile | None = None,
    refuses: Refusal | None = None,
    own_products: bool = True,
    flex: FlexKernels | None = None,
) -> Lowered:
    """The graph as a program; nodes whose loops turn out not to be writable become calls.

    `compile_part` compiles graphs inside the graph; without it torch runs them. `refuses` says
    what kernels on the device cannot hold, `own_products` whether they may multiply matrices,
    `flex` how attention with functions inside is compiled.
    """
    write_out_regions(gm)
    without_told_places(gm)
    ask_owners(gm)
    banned: dict[str, NotLowered] = {}
    while True:
        try:
            rest = compile_part, refuses, own_products, flex
            return GraphLowering(gm, kind, donated, banned, *rest).run()
        except NotLowered as e:
            if e.node is None or e.node in banned:
                raise
            banned[e.node] = e


class GraphLowering:
    """Lowers one graph, node by node."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        kind: GraphKind,
        donated: Sequence[int] = (),
        banned: Mapping[str, NotLowered] | None = None,
        compile_part: Compile | None = None,
        refuses: Refusal | None = None,
        own_products: bool = True,
        flex: FlexKernels | None = None,
    ) -> None:
        self.refuses, self.own_products, self.flex = refuses, own_products, flex
        self.compile_part, self.device = compile_part, device_of(gm)
        self.gm, self.donated, self.banned = gm, frozenset(donated), banned or {}
        self.builder = ProgramBuilder(kind.value, numerics=TORCH)
        self.sizes = GraphSizes(shape_env_of(gm), shown_sizes(gm.graph))
        self.env: dict[Any, Any] = {}
        self.calls: dict[str, LibraryCall] = {}
        self.under_way: dict[str, bool] = {}
        """Buffers that collectives write or change: whether nobody has waited for them yet."""
        self.origins: tuple[str, ...] = ()
        self.current = ""
        self._names: set[str] = set()
        self._ops: set[str] = set()
        self._mutated: set[str] = set()
        self._owners: dict[str, object] = {}
        self._held_by: dict[object, tuple[Realised, Any]] = {}
        self._shown: frozenset[object] | None = None
        self._position = 0
        self.out = Lowered(kind, Program("", (), ()), self.calls, [], [], [], {}, [], frozenset())

    # -- names and values ------------------------------------------------------------------
    def fresh(self, name: str) -> str:
        """An unused name for a buffer."""
        return unused_name(name, self._names, first=1)

    def fresh_op(self, name: str) -> str:
        """An unused name for an operation."""
        return unused_name(name, self._ops, first=1)

    def value(self, node: Any) -> Any:
        """The value of a node that was lowered before."""
        return self.env[node]

    def realise(self, value: Tensor, name: str, keep_gaps: bool = False) -> Realised:
        """A value in memory; with `keep_gaps`, just as far apart as torch says."""
        if isinstance(value, Realised):
            return value
        if value.home is None:
            where = self.fresh(name)
            while where in self._ops:
                where = self.fresh(name)
            self._ops.add(where)
            self.out.made_for[where] = self.current
            realise(self.builder, where, value, self.origins, keep_gaps, self.refuses)
        assert value.home is not None, "a realised value has a home"
        return value.home

    def laid_out(self, node: Any) -> Any:
        """The value of a node; if it is a tensor, in memory with the strides torch gave it."""
        value, val = self.env[node], node.meta.get("val")
        if not isinstance(value, Lazy | Realised) or not isinstance(val, torch.Tensor):
            return value
        wanted = Layout(self.sizes.exprs(val.shape), self.sizes.exprs(val.stride()))
        moved = self._exact(value, wanted, f"{node.name}_arg")
        if moved is None:
            return value
        self.out.made_for[moved.buffer.name] = node.name
        return moved

    # -- what torch says -------------------------------------------------------------------
    def is_representable(self, val: Any) -> bool:
        """Whether a result can be a buffer: a plain tensor of known sizes and type."""
        if not isinstance(val, torch.Tensor) or val.layout is not torch.strided:
            return False
        if device_name(val.device) != self.device or val.is_quantized:
            return False
        if known_type(val.dtype) is None:
            return False
        try:
            self.sizes.exprs((*val.shape, *val.stride()))
        except NotLowered:
            return False
        return True

    def dense(self, sizes: Index, val: Any) -> Index:
        """torch's strides of a result, if they are dense; row-major ones otherwise."""
        return dense_strides(sizes, self.sizes.exprs(val.stride()))

    # -- the graph -------------------------------------------------------------------------
    def run(self) -> Lowered:
        """The whole graph, lowered."""
        for node in self.gm.graph.nodes:
            self.current = node.name
            self.origins = origins_of(node)
            HANDLERS[node.op](self, node)
        self.builder.sizes.update(self.sizes.declared)
        self.out.program = moved_to(self.builder.build(), self.device)
        self.out.mutated = frozenset(self._mutated)
        return self.out

    def placeholder(self, node: Any) -> None:
        """An input: a buffer, a run-time size, or an object that calls are given."""
        position, self._position = self._position, self._position + 1
        val = node.meta.get("val")
        if self.is_representable(val):
            sizes, strides = self.sizes.exprs(val.shape), self.sizes.exprs(val.stride())
            name = self.fresh(node.name)
            donated = position in self.donated
            element = our_type(val.dtype)
            buffer = self.builder.input(name, element, sizes, strides=strides, donated=donated)
            self.env[node] = Realised(buffer, buffer.layout)
            self.out.tensors.append((position, name))
            self._owners[name] = storage_key(val)
        elif isinstance(val, torch.SymInt) and self._is_size(val):
            size = self.sizes.expr(val)
            self.env[node] = size
            if isinstance(size, Symbol):
                self.out.numbers.append((position, size.name))
        else:
            name = self.fresh(node.name)
            self.env[node] = Opaque(name)
            self.out.objects.append((position, name))

    def _is_size(self, val: Any) -> bool:
        if not compat.is_number(val):
            return False
        try:
            self.sizes.expr(val)
        except NotLowered:
            return False
        return True

    def get_attr(self, node: Any) -> None:
        """A tensor the graph holds becomes an input; anything else is handed to calls."""
        held: Any = self.gm
        for part in node.target.split("."):
            held = getattr(held, part)
        if self.is_representable(held) and type(held) in (torch.Tensor, torch.nn.Parameter):
            name = self.fresh(node.name)
            sizes, strides = self.sizes.exprs(held.shape), self.sizes.exprs(held.stride())
            buffer = self.builder.input(name, our_type(held.dtype), sizes, strides=strides)
            self.env[node] = Realised(buffer, buffer.layout)
            self.out.constants[name] = held
        else:
            self.env[node] = held

    def call_function(self, node: Any) -> None:
        """An operator: by the table, or as a call."""
        self.env[node] = self._finished(node, self._lowered(node))

    def _lowered(self, node: Any) -> Any:
        if node.target is operator.getitem:
            source = self.env.get(node.args[0])
            if isinstance(source, list | tuple):
                return source[node.args[1]]
            return add_call(self, node)
        val = node.meta.get("val")
        if isinstance(val, torch.SymInt | int) and not isinstance(val, bool):
            try:
                size = self.sizes.expr(val)
                return size if size.value is None else size.value
            except NotLowered:
                return add_call(self, node)
        if isinstance(val, float):
            return val
        if is_wait(node):
            waited = add_wait(self, node)
            return add_call(self, node) if waited is None else waited
        if is_flex(node):
            return add_flex(self, node)
        reason = self._reason_for_call(node, val)
        crashed = isinstance(self.banned.get(node.name), LoweringCrashed)
        if reason is None:
            begun = len(self.builder.buffers)
            try:
                is_number = isinstance(val, torch.SymFloat)
                value = run_number(self, node) if is_number else self._by_table(node)
                self.out.lowered += 1
                return value
            except NotLowered as e:
                if e.node is not None and e.node != node.name:
                    raise
                if len(self.builder.buffers) != begun:  # what was begun goes: once more without
                    raise type(e)(e.reason, node.name) from e
                reason, crashed = e.reason, isinstance(e, LoweringCrashed)
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as e:
                reason, crashed = f"its lowering fails: {type(e).__name__}: {e}", True
        self.out.fallbacks.append((str(node.target), reason))
        if crashed:
            self.out.crashes.append((str(node.target), reason))
        return add_call(self, node)

    def _reason_for_call(self, node: Any, val: Any) -> str | None:
        if isinstance(val, torch.SymFloat):
            return None
        if str(node.target) not in TABLE:
            return "no lowering"
        if node.name in self.banned:
            return self.banned[node.name].reason
        if (refused := refused_type(node)) is not None:
            return f"eager mode has no kernel of it for {refused}"
        if any(isinstance(self.env[a], Opaque) for a in node.all_input_nodes):
            return "an argument exists at run time only"
        results = val if isinstance(val, list | tuple) else [val]
        if not all(self.is_representable(v) for v in results if v is not None):
            return "a result is no plain tensor"
        return None

    def _by_table(self, node: Any) -> Any:
        self._realise_what_overlaps(node)
        args = [self._argument(a) for a in node.args]
        kwargs = {key: self._argument(a) for key, a in node.kwargs.items()}
        value = TABLE[str(node.target)](Node(self, node), *args, **kwargs)
        self._check(node, value)
        return value

    def _realise_what_overlaps(self, node: Any) -> None:
        """Put what a view that overlaps itself shows into memory, as it is in eager mode."""
        val, source = node.meta.get("val"), node.args[0] if node.args else None
        if not isinstance(val, torch.Tensor) or not isinstance(source, torch.fx.Node):
            return
        value, of = self.env[source], source.meta.get("val")
        if not isinstance(value, Lazy) or not isinstance(of, torch.Tensor):
            return
        sizes, strides = self.sizes.exprs(val.shape), self.sizes.exprs(val.stride())
        if storage_key(val) == storage_key(of) and overlaps(sizes, strides):
            self.realise(value, source.name)

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, torch.fx.Node):
            value = self.env[arg]
            return value.home if isinstance(value, Lazy) and value.home is not None else value
        if isinstance(arg, list | tuple):
            return [self._argument(a) for a in arg]
        return arg

    def _check(self, node: Any, value: Any) -> None:
        """A lowering that disagrees with torch about a result is not used."""
        val = node.meta.get("val")
        pairs = zip(value, val, strict=True) if isinstance(val, list | tuple) else [(value, val)]
        for made, wanted in pairs:
            if made is None or wanted is None:
                continue
            sizes, element = self.sizes.exprs(wanted.shape), our_type(wanted.dtype)
            if tuple(made.sizes) != sizes or made.dtype is not element:
                found = f"{made.dtype}[{', '.join(map(str, made.sizes))}]"
                want = f"{element}[{', '.join(map(str, sizes))}]"
                raise NotLowered(f"its lowering gives {found}, torch says {want}")

    def _finished(self, node: Any, value: Any) -> Any:
        """The value as it is kept: realised now if the rules say so."""
        if not isinstance(value, Lazy) or value.home is not None:
            return value
        val = node.meta.get("val")
        if value.strides is None and isinstance(val, torch.Tensor):
            value.strides = self.sizes.exprs(val.stride())
        readers = [user for user in node.users if not looks_at_shape(user)]
        several = len(readers) > 1 and not is_cheap(value, self.builder.buffers)
        is_shown = self.is_seen_twice(val)
        if several and not is_shown and self._realise_narrow(node, value):
            return value
        if several or is_too_long(value) or is_shown or self._is_repeated(node, value):
            self.realise(value, node.name, keep_gaps=is_shown)
        return value

    def _realise_narrow(self, node: Any, value: Lazy) -> bool:
        """Put what a conversion to a wider type converts into memory instead; whether that is so.

        Its readers then read half the bytes, and convert them for themselves.
        """
        if str(node.target) not in CONVERSIONS or not isinstance(node.args[0], torch.fx.Node):
            return False
        given = self.env[node.args[0]]
        if not isinstance(given, Lazy) or given.home is not None or given.sizes != value.sizes:
            return False
        is_wider = given.dtype.is_float and given.dtype.itemsize < value.dtype.itemsize
        # What is quickly computed mostly ends up inside of a kernel, wherever it is written here.
        if not is_wider or work_of(value, self.builder.buffers) <= CHEAP_OF_LITTLE:
            return False
        self.realise(given, node.args[0].name)
        return True

    def _is_repeated(self, node: Any, value: Lazy) -> bool:
        """Whether readers would compute what is costly there, or is written anyway, again."""
        if self.device != "cpu":
            return is_multiplied_turned(node)
        asked = elements_asked(node, value, self.sizes)
        is_around = is_repeated_around(node, value, self.sizes)
        return is_costly_to_repeat(value, self.builder.buffers, asked, is_around)

    def is_seen_twice(self, val: Any) -> bool:
        """Whether several results show one memory: then what they show must be in memory."""
        if self._shown is None:
            self._shown = shown_twice(self.gm.graph)
        return isinstance(val, torch.Tensor) and storage_key(val) in self._shown

    # -- mutation --------------------------------------------------------------------------
    def settle(self, buffer: str, but: Any = None) -> None:
        """Before `buffer` changes: values that still need what it holds are put elsewhere."""
        self._mutated.add(buffer)
        for node, value in list(self.env.items()):
            if node is but or node.op == "placeholder" or not is_used_later(node, self.env, but):
                continue
            self.env[node] = self._settled(value, buffer, node.name)

    def _settled(self, value: Any, buffer: str, name: str) -> Any:
        if isinstance(value, list | tuple):
            return type(value)([self._settled(v, buffer, name) for v in value])
        if isinstance(value, Lazy) and buffer in value.reads:
            return self.realise(value, name)
        if isinstance(value, Realised) and value.buffer.name == buffer:
            return self._copied(value, name)
        return value

    def _copied(self, value: Realised, name: str) -> Realised:
        copy = Lazy(value.sizes, value.dtype, value.load, value.reads)
        return self.realise(copy, name)

    def overwrite(self, target: Realised, value: Tensor, node: Any) -> None:
        """Write a value over a view of a buffer."""
        buffer = target.buffer.name
        self.settle(buffer, node)
        if buffer in value.reads and not (isinstance(value, Lazy) and value.home is not None):
            if isinstance(value, Realised):
                value = self._copied(value, node.name)
            else:
                value = self.realise(value, node.name)
        name = self.fresh_op(f"{node.name}_write")
        write_loop(self.builder, name, value, target.buffer, target.layout, self.origins)

    # -- outputs ---------------------------------------------------------------------------
    def output(self, node: Any) -> None:
        """What the graph returns; each buffer with torch's own strides."""
        results = node.args[0]
        is_backward = self.out.kind is GraphKind.BACKWARD
        of_inputs = frozenset() if is_backward else compat.results_that_show_inputs()
        made: dict[tuple[Any, bool], Any] = {}
        for position, arg in enumerate(results if isinstance(results, list | tuple) else [results]):
            key = (arg, position in of_inputs)  # one node twice is one tensor twice
            if key not in made:
                made[key] = self._output(*key)
            self.out.outputs.append(made[key])

    def _output(self, arg: Any, is_of_input: bool) -> Any:
        value = self.env[arg] if isinstance(arg, torch.fx.Node) else arg
        if isinstance(value, Number):
            return held(self, value)
        if not isinstance(value, Lazy | Realised):
            return value
        val = arg.meta.get("val")
        inside = self._inside_changed(val) if is_of_input else None
        if inside is not None:
            where = inside
        elif not isinstance(val, torch.Tensor):
            where = self.realise(value, arg.name)
        else:
            wanted = self._wanted(val, is_of_input)
            exact = self._exact(value, wanted, arg.name, self.is_seen_twice(val))
            where = exact or self._apart(self.realise(value, arg.name), val, arg.name)
        if where.buffer.name not in self.builder.outputs:
            self.builder.returns(where.buffer)
        if not isinstance(val, torch.Tensor):
            return where
        return Realised(where.buffer, self._as_said(where.layout, val))

    def _as_said(self, layout: Layout, val: Any) -> Layout:
        """The layout with torch's steps along dimensions that nobody steps along."""
        said = self.sizes.exprs(val.stride())
        pairs = zip(layout.sizes, layout.strides, said, strict=True)
        strides = tuple([t if n.value == 1 else s for n, s, t in pairs])
        return Layout(layout.sizes, strides, layout.offset)

    def note_copy(self, target: Realised, node: Any) -> None:
        """Remember that an input now holds what a copy's source holds, element by element."""
        if not isinstance(node.args[1], torch.fx.Node):
            return
        new, old = node.args[1].meta.get("val"), node.args[0].meta.get("val")
        if target.buffer.name not in self.builder.inputs or not isinstance(new, torch.Tensor):
            return
        is_alike = new.dtype is old.dtype and self.sizes.exprs(new.shape) == target.layout.sizes
        if is_alike and _same_steps(target.layout, self.sizes.exprs(new.stride())):
            self._held_by[storage_key(new)] = (target, new)

    def _inside_changed(self, val: Any) -> Realised | None:
        """The view of a changed input that holds a result which is a view of that input.

        The graph shows a view of the new elements; whoever asked for it looks at where in the
        input it begins, which new memory does not know.
        """
        found = self._held_by.get(storage_key(val)) if isinstance(val, torch.Tensor) else None
        if found is None or found[1].dtype is not val.dtype:
            return None
        held, new = found
        begin = self.sizes.expr(val.storage_offset()) - self.sizes.expr(new.storage_offset())
        sizes, strides = self.sizes.exprs(val.shape), self.sizes.exprs(val.stride())
        return Realised(held.buffer, Layout(sizes, strides, held.layout.offset + begin))

    def _wanted(self, val: Any, is_of_input: bool) -> Layout:
        """How torch expects a result to lie; where it begins counts if it is a view of an input.

        AOTAutograd looks at that when it makes the view.
        """
        begin = as_expr(0)
        if is_of_input and self._owners_input(val) is None:
            begin = self.sizes.expr(val.storage_offset())
        return Layout(self.sizes.exprs(val.shape), self.sizes.exprs(val.stride()), begin)

    def _owners_input(self, val: Any) -> str | None:
        """The input whose memory a result shows, if there is one."""
        mine = storage_key(val)
        owners = self._owners.items()
        return next((n for n, s in owners if s == mine and n in self.builder.inputs), None)

    def _exact(
        self, value: Tensor, wanted: Layout, name: str, is_view: bool = False
    ) -> Realised | None:
        """The value in new memory that lies just so; None if it does already, or cannot.

        A view of something that is returned too must not move, so likely sizes are proof enough.
        """
        home = value if isinstance(value, Realised) else value.home
        begin = wanted.offset
        begins_there = begin.value == 0 or (home is not None and home.layout.offset is begin)
        if home is not None and begins_there and _same_steps(home.layout, wanted.strides, is_view):
            return None
        if home is None and begin.value == 0:
            dense = Layout(value.sizes, dense_strides(value.sizes, wanted.strides))
            if _same_steps(dense, wanted.strides):
                return None
        # Dimensions that are repeated without steps hold one element each.
        pairs = list(zip(value.sizes, wanted.strides, strict=True))
        sizes = tuple([as_expr(1) if s.value == 0 and n.value != 0 else n for n, s in pairs])
        if any(n.value == 0 for n in sizes) or not is_spread(sizes, wanted.strides):
            return None
        layout = Layout(sizes, wanted.strides, begin)
        whole = (sizes, wanted.strides) if begin.value == 0 else ((layout.span,), None)
        target = self.builder.buffer(self.fresh(name), value.dtype, *whole)
        part = Lazy(sizes, value.dtype, value.load, value.reads)
        where = self.fresh_op(name)
        write_loop(self.builder, where, part, target, layout, self.origins, self.refuses)
        return Realised(target, Layout(tuple(value.sizes), wanted.strides, begin))

    def _apart(self, where: Realised, val: Any, name: str) -> Realised:
        """A result that shares memory with another tensor only if it does so in eager mode."""
        mine = storage_key(val)
        theirs = self._owners.setdefault(where.buffer.name, mine)
        if theirs == mine:
            return where
        strides = self.sizes.exprs(val.stride())
        other = Lazy(where.sizes, where.dtype, where.load, where.reads, strides=strides)
        copy = self.realise(other, name, keep_gaps=True)
        self._owners[copy.buffer.name] = mine
        return copy


def _same_steps(layout: Layout, wanted: Index, by_hint: bool = False) -> bool:
    steps = zip(layout.sizes, layout.strides, wanted, strict=True)
    real = [(a, b) for n, a, b in steps if n.value not in (0, 1)]
    return all(a is b or (by_hint and hint(a) == hint(b)) for a, b in real)


HANDLERS: dict[str, Callable[[GraphLowering, Any], None]] = {
    "placeholder": GraphLowering.placeholder,
    "get_attr": GraphLowering.get_attr,
    "call_function": GraphLowering.call_function,
    "output": GraphLowering.output,
}
