"""Values while a graph is lowered.

    Realised   a view of a buffer: sizes, strides, offset
    Lazy       a computation of one element that no loop has been written for yet
    Number     a fraction that sizes decide: computed inside the loops that use it
    Opaque     a Python object that exists at run time only (complex tensors, data-dependent sizes)

Views are new strides, or index maps in front of a computation: they never copy. A `Lazy` is a
function from loop indices to a body value; its consumers call it inside their own loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from treadle.frontends.torch.lowering.index_tables import known_index
from treadle.index import Domain, Expr, Facts
from treadle.ir.body import Body, Scalar, Stmt, value_symbol
from treadle.ir.build_body import BodyBuilder, Value
from treadle.ir.types import Buffer, DType, Layout

Index: TypeAlias = tuple[Expr, ...]
Inner: TypeAlias = "Callable[[LoopWriter, Index], Value]"
Refusal: TypeAlias = "Callable[[Stmt, Sequence[DType], Mapping[str, Buffer], Domain], str | None]"
"""Why a statement on operands of these types has no form in the graph's kernels; None if it has."""


class NotLowered(Exception):  # noqa: N818
    """This node cannot become loops; the reason says why, and the ATen operator is called."""

    def __init__(self, reason: str, node: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node
        """The node to blame, where that is not the one being lowered."""


class LoweringCrashed(NotLowered):
    """The function that lowers this node raised an exception: a mistake, not a known limit."""


class LoopWriter(BodyBuilder):
    """A body builder that writes each computation once per place, and marks unproven accesses."""

    def __init__(
        self,
        buffers: dict[str, Buffer],
        extents: Sequence[Expr],
        reduce: Sequence[Expr] = (),
        refuses: Refusal | None = None,
    ) -> None:
        super().__init__(buffers, extents, reduce)
        self.refuses = refuses
        self.space: Domain = self.domain + self.reduce if len(self.reduce) else self.domain
        self._known: list[dict[object, Value]] = [{}]
        self._made: dict[int, Stmt] = {}
        self._formulas: dict[tuple[int, Expr | None, bool], Expr | None] = {}

    def emit(
        self,
        op: str,
        args: Sequence[Value] = (),
        attrs: tuple[object, ...] = (),
        region: Callable[[], Sequence[Value]] | None = None,
    ) -> Value:
        """Append a statement, unless kernels on the graph's device cannot hold it."""
        if self.refuses is not None:
            given = [t for a in args if isinstance(t := self.types.values[a.number], DType)]
            reason = self.refuses(Stmt(op, (), attrs), given, self.buffers, self.reduce)
            if reason is not None:
                raise NotLowered(reason)
        made = super().emit(op, args, attrs, region)
        if region is None:
            self._made[made.number] = Stmt(op, tuple([a.number for a in args]), attrs)
        return made

    def formula_of(self, number: int, size: Expr | None = None, wrap: bool = False) -> Expr | None:
        """What a whole number is as an index, into `size` elements if said, if one loop decides."""
        key = (number, size, wrap)
        if key not in self._formulas:
            found = known_index(self._made, self.types.values, number, self.space, size, wrap)
            self._formulas[key] = found
        return self._formulas[key]

    @property
    def at(self) -> Index:
        """The iteration loops as coordinates."""
        return tuple(self.domain.vars)

    @property
    def along(self) -> Index:
        """The reduction loops as coordinates."""
        return tuple(self.reduce.vars)

    def once(self, key: object, write: Callable[[], Value]) -> Value:
        """What `write` gives, written only the first time `key` is seen in view."""
        for known in self._known:
            if key in known:
                return known[key]
        value = write()
        self._known[-1][key] = value
        return value

    def masked(self, mask: Value, other: Scalar, region: Callable[[], Value]) -> Value:
        """`region()` where the mask holds; what is written inside is not in view outside."""

        def inside() -> Value:
            self._known.append({})
            try:
                return region()
            finally:
                self._known.pop()

        return super().masked(mask, other, inside)

    def simplify(self, e: Expr) -> Expr:
        """An index expression, simpler where the loops allow it."""
        if any(n.value == 0 for n in self.space.extents):
            return e  # all is true of a loop that never runs, and nothing may be read before it
        return self.space.facts.simplify(e)

    def build(self) -> Body:
        """The frozen body; accesses that cannot be proved inside their buffer are checked."""
        body = super().build()
        facts = _facts(body)
        if any(n.value == 0 for n in body.domain.extents):
            return body
        stmts = tuple([self._proved(s, facts) for s in body.stmts])
        return replace(body, stmts=stmts)

    def _proved(self, stmt: Stmt, facts: Facts) -> Stmt:
        if stmt.op not in ("load", "store"):
            return stmt
        if facts.within(stmt.address, self.buffers[stmt.buffer].storage_numel):
            return stmt
        return stmt.with_attr("unproven", True)


def _facts(body: Body) -> Facts:
    from treadle.ir.spec_facts import facts_of

    return facts_of(body)


@dataclass(frozen=True, eq=False)
class Realised:
    """Elements in memory: a view of the storage of `buffer`."""

    buffer: Buffer
    layout: Layout

    @property
    def sizes(self) -> Index:
        """The size of each dimension."""
        return self.layout.sizes

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.buffer.dtype

    @property
    def reads(self) -> frozenset[str]:
        """The buffers a load touches."""
        return frozenset({self.buffer.name})

    @property
    def parts(self) -> frozenset[object]:
        """The computations a load repeats: none."""
        return frozenset()

    def load(self, k: LoopWriter, at: Index) -> Value:
        """The element at the given coordinates."""
        index = k.simplify(self.layout.index(at))
        return k.once((self.buffer.name, index), lambda: k.load_at(self.buffer, index))


@dataclass(eq=False)
class Lazy:
    """A computation of one element, given its coordinates."""

    sizes: Index
    dtype: DType
    inner: Inner
    own_reads: frozenset[str] = frozenset()
    own_parts: frozenset[object] = frozenset()
    """One mark per pointwise operation that is repeated wherever this is used."""
    strides: Index | None = None
    """How torch would lay it out, if that is known."""
    home: Realised | None = field(default=None, repr=False)
    """Where it lies once a loop has been written for it."""

    @property
    def reads(self) -> frozenset[str]:
        """The buffers a load touches."""
        return self.own_reads if self.home is None else self.home.reads

    @property
    def parts(self) -> frozenset[object]:
        """The computations a load repeats."""
        return self.own_parts if self.home is None else self.home.parts

    def load(self, k: LoopWriter, at: Index) -> Value:
        """The element at the given coordinates: computed here, or loaded if it is in memory."""
        if self.home is not None:
            return self.home.load(k, at)
        return k.once((id(self), at), lambda: self.inner(k, at))


@dataclass(eq=False)
class Opaque:
    """What only Python can hold: known at run time under `name`."""

    name: str
    looks_into: tuple[Buffer, ...] = ()
    """The buffers whose memory it shows, if it is a view: who reads it reads them."""


@dataclass(eq=False)
class Number:
    """A fraction that is known at run time only, and how a loop computes it, as an f64."""

    node: Any
    """The node that stands for it in the graph: what a call is given is computed by Python."""
    write: Callable[[LoopWriter], Value]
    range: tuple[float, float]
    """Between which numbers it lies."""
    held: Opaque | None = None
    """The object Python computes, once a call has asked for it."""

    def load(self, k: LoopWriter) -> Value:
        """The number, written once."""
        return k.once(("run-time number", id(self)), lambda: self.write(k))


Tensor: TypeAlias = "Lazy | Realised"


def as_index(k: LoopWriter, value: Value, size: Expr, wrap: bool = True) -> Expr:
    """A value as an index into `size` elements, checked if need be; negative ones from the end."""
    formula = k.formula_of(value.number, size, wrap)
    if formula is not None:
        return formula
    key = ("indirect", value.number, size, wrap)
    made = k.once(key, lambda: k.emit("indirect", [value], (size, wrap, True)))
    return value_symbol(made.number)
