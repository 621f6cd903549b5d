"""The program: buffers, operations in order, inputs, outputs. Frozen; passes return new ones.

Operation kinds

    Loop        an index domain and a body: pointwise, reduction, scan, sort, scatter
    Extern      a library call                       Template    a kernel with open slots
    UserKernel  a user's own kernel                  Collective  starts communication
    Wait        ends it                              MultiOutput takes one tensor out of a tuple
    Nop         allocates, computes nothing

and groups of them, which run as one: Fused (one kernel), MixOrder (two reductions of transposed
shape in one kernel), Foreach (independent kernels in one launch), Grouped (kept side by side). In
the end each launch of generated code is a Kernel, made of Nests: loops that are what the code does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from treadle.index import Expr, Symbol
from treadle.ir.body import Body, Literal
from treadle.ir.loop_schedule import Step
from treadle.ir.numerics import EXACT, Numerics
from treadle.ir.parameters import KernelParameter
from treadle.ir.ranks import RankGroup
from treadle.ir.types import Buffer

T = TypeVar("T")


class Ref(NamedTuple):
    """A buffer as an argument of a call."""

    buffer: str


Arg: TypeAlias = "Ref | Literal | Expr | tuple[Arg, ...]"
"""An argument of a call: a buffer, a literal, a size known at run time, or a list of these."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What every operation has: a name, a device, where it came from, what it must follow."""

    name: str
    device: str = "cpu"
    origins: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[Operation, ...]:
        """The operations that do the work: the members of a group, else itself."""
        return (self,)

    def __getstate__(self) -> dict[str, Any]:
        # What was found out about an operation stays behind when it is copied or sent.
        return {name: value for name, value in self.__dict__.items() if name[0] != "_"}


@dataclass(frozen=True, kw_only=True)
class Loop(Operation):
    """A body run at every point of its domain."""

    body: Body


@dataclass(frozen=True, kw_only=True)
class Nest(Loop):
    """A loop nest of a kernel: it runs the operations `runs`, joined into one body.

    Its second loops are inner loops: they need not reduce anything, but may be passed several
    times at each point of the first ones.
    """

    runs: tuple[str, ...]
    schedule: tuple[Step, ...] = ()
    """How its loops are walked; without steps, as they stand."""


@dataclass(frozen=True, kw_only=True)
class Call(Operation):
    """A call of something opaque: what it reads is in `args`, the rest is said outright."""

    target: str
    args: tuple[Arg, ...] = ()
    writes: tuple[str, ...] = ()
    mutates: tuple[str, ...] = ()
    attrs: tuple[tuple[str, Arg], ...] = ()
    has_side_effects: bool = False


@dataclass(frozen=True, kw_only=True)
class Extern(Call):
    """A library call."""


@dataclass(frozen=True, kw_only=True)
class Template(Call):
    """A kernel template: pointwise work may be fused into the slots it leaves open."""

    prologue_slots: tuple[str, ...] = ()
    has_epilogue_slot: bool = True


@dataclass(frozen=True, kw_only=True)
class UserKernel(Call):
    """A user's own kernel (Triton): opaque, but known to mutate only what it says."""


@dataclass(frozen=True, kw_only=True)
class Collective(Call):
    """Starts communication within `group`; its results may be read after a Wait on them."""

    group: str = ""
    ranks: tuple[int, ...] = ()
    """Who is in the group, numbered as in the whole job; empty where that is not known."""

    @property
    def sent_together(self) -> tuple[str, ...]:
        """The collectives that it stands for, if it sends several messages as one."""
        names = dict(self.attrs).get("sends")
        if not isinstance(names, tuple):
            return ()
        return tuple([str(n.value) for n in names if isinstance(n, Literal)])

    @property
    def part_of(self) -> str:
        """The collective of which it sends a part; empty if it sends all that it was given."""
        name = dict(self.attrs).get("part_of")
        return str(name.value) if isinstance(name, Literal) else ""

    @property
    def rank_group(self) -> RankGroup | None:
        """The group with its ranks; None if they are not known."""
        return RankGroup(self.group, self.ranks) if self.ranks else None


@dataclass(frozen=True, kw_only=True)
class Wait(Operation):
    """Waits until the collective that wrote `buffer` is done."""

    buffer: str


@dataclass(frozen=True, kw_only=True)
class MultiOutput(Operation):
    """Takes tensor number `position` out of the tuple `source`; it was allocated there."""

    source: str
    position: int
    target: str


@dataclass(frozen=True, kw_only=True)
class Nop(Operation):
    """Allocates its buffers and leaves them uninitialised."""

    writes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Group(Operation):
    """Several operations that are scheduled as one."""

    members: tuple[Operation, ...]

    @property
    def leaves(self) -> tuple[Operation, ...]:
        known: tuple[Operation, ...] | None = self.__dict__.get("_leaves")
        if known is None:
            known = self.__dict__["_leaves"] = tuple([x for m in self.members for x in m.leaves])
        return known

    def with_members(self, members: tuple[Operation, ...]) -> Group:
        """The group with other members."""
        return replace(self, members=members)


@dataclass(frozen=True, kw_only=True)
class Fused(Group):
    """One kernel."""


@dataclass(frozen=True, kw_only=True)
class MixOrder(Group):
    """One kernel of two reductions over transposed shapes."""


@dataclass(frozen=True, kw_only=True)
class Foreach(Group):
    """Independent kernels in one launch."""


@dataclass(frozen=True, kw_only=True)
class Grouped(Group):
    """Operations that stay side by side."""


@dataclass(frozen=True, kw_only=True)
class Kernel(Group):
    """One launch of generated code: nests that run one after the other, perhaps around a call.

    `shape` says where it came from: a `loop`, members that were `fused`, two `mixed` orders,
    independent nests (`foreach`), or a `template` with its prologue and epilogue.
    """

    shape: str = "loop"
    parameters: tuple[KernelParameter, ...] = ()
    """The storages it is given and what it does with each; empty before they are stated."""

    def with_members(self, members: tuple[Operation, ...]) -> Kernel:
        """The kernel with other members; what was stated of its parameters may not hold then."""
        return replace(self, members=members, parameters=())


KERNEL_SHAPES = ("loop", "fused", "mixed", "foreach", "template")
LEAF_KINDS: tuple[type[Operation], ...] = (
    Loop, Nest, Extern, Template, UserKernel, Collective, Wait, MultiOutput, Nop,
)  # fmt: skip
GROUP_KINDS: tuple[type[Group], ...] = (Fused, MixOrder, Foreach, Grouped, Kernel)


@dataclass(frozen=True)
class Program:
    """Operations over buffers, in an order that respects every dependence."""

    name: str
    buffers: tuple[Buffer, ...]
    ops: tuple[Operation, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    donated: tuple[str, ...] = ()
    sizes: tuple[Symbol, ...] = ()
    numerics: Numerics = EXACT
    """How far from the interpreter's values generated code may be."""
    _memo: dict[object, Any] = field(
        default_factory=dict, init=False, compare=False, repr=False, hash=False
    )
    _memo_of_buffers: dict[object, Any] = field(
        default_factory=dict, init=False, compare=False, repr=False, hash=False
    )

    def derive(self, question: Callable[[Program], T]) -> T:
        """`question(self)`, computed once: a frozen program cannot make an answer stale."""
        memo = self._memo
        known = memo.get(question, memo)
        if known is memo:
            known = memo[question] = question(self)
        answer: T = known
        return answer

    def derive_from_buffers(self, question: Callable[[Program], T]) -> T:
        """`question(self)` about buffers and sizes only, whatever the operations are.

        `with_ops` passes the answer on, so a pass list asks once.
        """
        memo = self._memo_of_buffers
        known = memo.get(question, memo)
        if known is memo:
            known = memo[question] = question(self)
        answer: T = known
        return answer

    def knows(self, op: Operation, fact: str) -> bool:
        """Whether `note` said this of the operation, here or in a program over the same buffers."""
        return op.__dict__.get(fact) is self._memo_of_buffers

    def note(self, op: Operation, fact: str) -> None:
        """Say once that something holds of an operation over these buffers; both are frozen."""
        op.__dict__[fact] = self._memo_of_buffers

    def derive_of(self, op: Operation, question: Callable[[Operation, Program], T]) -> T:
        """`question(op, self)` about an operation and the buffers it names, computed once.

        The answer holds in every program over the same buffers, so a pass list asks once for each
        operation that it leaves alone.
        """
        known = op.__dict__.get("_derived")
        if known is None or known[0] is not self._memo_of_buffers:
            known = op.__dict__["_derived"] = (self._memo_of_buffers, {})
        answers: dict[object, T] = known[1]
        if question not in answers:
            answers[question] = question(op, self)
        return answers[question]

    def remember(self, question: Callable[[Program], T], answer: T) -> None:
        """Tell the answer to a question before it is asked; it must be what asking would give."""
        self._memo.setdefault(question, answer)

    @property
    def by_name(self) -> Mapping[str, Buffer]:
        """Buffers by name."""
        return self.derive_from_buffers(_buffers_by_name)

    @property
    def op_by_name(self) -> Mapping[str, Operation]:
        """Operations by name: the groups and their members."""
        return self.derive(_ops_by_name)

    @property
    def leaves(self) -> tuple[Operation, ...]:
        """All operations with groups unpacked."""
        return self.derive(_leaves)

    def storage_of(self, name: str) -> str:
        """The buffer that owns the storage `name` lives in."""
        roots = self._memo_of_buffers.get(_storage_roots)
        if roots is None:
            roots = self.derive_from_buffers(_storage_roots)
        root: str = roots.get(name, name)
        return root

    def with_ops(self, ops: tuple[Operation, ...]) -> Program:
        """The same program over other operations; itself if they are the same objects."""
        if len(ops) == len(self.ops) and all(a is b for a, b in zip(ops, self.ops, strict=True)):
            return self
        new = replace(self, ops=ops)
        object.__setattr__(new, "_memo_of_buffers", self._memo_of_buffers)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        # Memoised answers stay behind: they can be large and are cheap to recompute.
        fields = (self.name, self.buffers, self.ops, self.inputs, self.outputs)
        return Program, (*fields, self.donated, self.sizes, self.numerics)


def _buffers_by_name(program: Program) -> dict[str, Buffer]:
    return {b.name: b for b in program.buffers}


def walk_operations(ops: tuple[Operation, ...]) -> Iterator[Operation]:
    """Every operation, groups before their members."""
    stack = list(reversed(ops))
    while stack:
        op = stack.pop()
        yield op
        if isinstance(op, Group):
            stack.extend(reversed(op.members))


def _ops_by_name(program: Program) -> dict[str, Operation]:
    return {op.name: op for op in walk_operations(program.ops)}


def _leaves(program: Program) -> tuple[Operation, ...]:
    return tuple([leaf for op in program.ops for leaf in op.leaves])


def _storage_roots(program: Program) -> dict[str, str]:
    by_name = program.by_name
    roots: dict[str, str] = {}
    for b in program.buffers:
        root, seen = b, {b.name}
        while root.view_of is not None and root.view_of in by_name:
            root = by_name[root.view_of]
            if root.name in seen:
                break  # a ring of views: the verifier reports it
            seen.add(root.name)
        if root.name != b.name:
            roots[b.name] = root.name
    return roots
