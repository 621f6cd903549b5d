"""What decides the text of an attention kernel: types, head sizes, functions, blocks, tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from treadle.index import Kind, Symbol
from treadle.ir.body import Body, Literal
from treadle.ir.types import Buffer, DType

SCORE, GRAD, RESULT = "score", "grad", "result"
"""Buffers that stand for values of the kernel: the score of a pair, the gradient behind it, what
the function gives."""
CAPTURED = "captured_"
"""How the names of tensors begin that a function reads from memory."""


@dataclass(frozen=True)
class Points:
    """A function of one pair of query and key: a body over (batch, head, query, key)."""

    body: Body
    buffers: Mapping[str, Buffer] = field(hash=False)

    @cached_property
    def sizes(self) -> tuple[Symbol, ...]:
        """The run-time sizes that its statements speak of."""
        found = [e for at in self.body.walk() for e in at.stmt.attrs if hasattr(e, "free")]
        names = {s for e in found for s in e.free if s.kind is Kind.SIZE}
        return tuple(sorted(names, key=lambda s: s.name))

    @cached_property
    def is_true(self) -> bool:
        """Whether it gives a truth that no pair changes."""
        made = {at.number: at.stmt for at in self.body.walk() if at.number is not None}
        (kept,) = [at.stmt for at in self.body.walk() if at.stmt.op == "store"]
        stmt = made[kept.args[0]]
        while stmt.op in ("cast", "identity"):
            stmt = made[stmt.args[0]]
        value = stmt.attr("value") if stmt.op == "constant" else None
        return isinstance(value, Literal) and bool(value.value)

    @cached_property
    def is_score(self) -> bool:
        """Whether it gives back the very score it is given."""
        made = {at.number: at.stmt for at in self.body.walk() if at.number is not None}
        (kept,) = [at.stmt for at in self.body.walk() if at.stmt.op == "store"]
        stmt = made[kept.args[0]]
        return stmt.op == "load" and stmt.buffer == SCORE


@dataclass(frozen=True)
class Lists:
    """Which blocks of keys each block of queries looks at, and the other way round."""

    block_q: int
    block_kv: int
    has_full: bool
    """Whether blocks in which every pair counts are listed apart."""
    per_batch: bool
    per_head: bool


@dataclass(frozen=True)
class FlexSpec:
    """An attention operator; lengths and strides are arguments of its kernels."""

    dtype: DType
    qk_dim: int
    v_dim: int
    heads: int
    """Of the queries."""
    group: int
    """Query heads for each head of keys and values."""
    one_kv_batch: bool
    """Whether all batches of queries look at one batch of keys and values."""
    scale: float
    precision: str
    """How f32 is multiplied: `ieee` or `tf32`."""
    lists: Lists | None
    score: Points | None = None
    """None: scores stay as they are."""
    mask: Points | None = None
    """None: every pair counts."""
    joint: Points | None = None
    """The gradient of a score, from the score and the gradient behind `score`."""

    @property
    def functions(self) -> tuple[Points, ...]:
        """The functions there are."""
        return tuple([p for p in (self.score, self.mask, self.joint) if p is not None])

    @property
    def captured(self) -> tuple[str, ...]:
        """The tensors that functions read, by name."""
        found = {at[0] for p in self.functions for at in p.body.loads()}
        return tuple(sorted(n for n in found if n.startswith(CAPTURED)))

    @property
    def sizes(self) -> tuple[Symbol, ...]:
        """The run-time sizes that functions speak of."""
        found = {s for p in self.functions for s in p.sizes}
        return tuple(sorted(found, key=lambda s: s.name))

    def buffer(self, name: str) -> Buffer:
        """A captured tensor."""
        return next(p.buffers[name] for p in self.functions if name in p.buffers)


@dataclass(frozen=True)
class Tile:
    """Queries and keys that a program holds at once, and how it is run."""

    m: int
    n: int
    warps: int
    stages: int


@dataclass(frozen=True)
class FlexKernel:
    """A kernel as the text of a module, with the names of its arguments in order."""

    name: str
    text: str
    addresses: tuple[str, ...]
    numbers: tuple[str, ...]
    tile: Tile

    @property
    def options(self) -> dict[str, int]:
        """What a launch tells Triton besides its arguments."""
        found = {"num_warps": self.tile.warps, "num_stages": self.tile.stages}
        if "tl.device_assert" in self.text:
            found["debug"] = True  # without it Triton drops the check, and memory outside is read
        return found
