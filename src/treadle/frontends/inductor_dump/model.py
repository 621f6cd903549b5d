"""What an Inductor dump says, as plain frozen data; printing it gives the file back.

    Dump > Section > Node > Buffer > Layout, User
                          > Dep (MemoryDep, StarDep, WeakDep)
                          > Detail (Extern, Loop > LoopBody > Block > Statement, Members > Node)

Names and orders are those of the file, duplicates included. Fields called `line` say where a thing
stood; they take no part in comparison, so that a program that edits a dump can ignore them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from treadle.frontends.dumps import Finding
from treadle.frontends.inductor_dump.dialect import Dialect
from treadle.index import Expr
from treadle.index.text import show_sympy_whole

# ------------------------------------------------------------------------------ small values


@dataclass(frozen=True, slots=True)
class Index:
    """An index expression: its text, and what it means if the index algebra can say it."""

    text: str
    expr: Expr | None = field(default=None, compare=False)

    @classmethod
    def of(cls, expr: Expr) -> Index:
        """The index for an expression that a program made, spelled as the dumps spell it."""
        return cls(show_sympy_whole(expr), expr)


@dataclass(frozen=True, slots=True)
class Bracketed:
    """Index expressions in brackets, possibly nested: `[8, 16]`, `((8,), (16,))`."""

    items: tuple[Index | Bracketed, ...]
    brackets: Literal["[]", "()"] = "[]"


Ranges: TypeAlias = tuple[tuple[str, Index], ...]


@dataclass(frozen=True, slots=True)
class UnknownNodeLine:
    """A line that the format may have gained since: kept, counted, printed where it stood.

    `after` names the part of the node that it follows.
    """

    text: str
    after: str
    line: int = field(default=0, compare=False)


# ------------------------------------------------------------------------------ dependences


@dataclass(frozen=True, slots=True)
class MemoryDep:
    """An access to the elements `index` of a buffer, over `ranges`; `mode` is `atomic_add` ..."""

    name: str
    index: Index
    ranges: Ranges
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class StarDep:
    """An access to a whole buffer."""

    name: str
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class WeakDep:
    """An order only: `mutating_buf` overwrites what the writer of `name` had read.

    `is_fake` is None in dumps of before the distinction.
    """

    name: str
    mutating_buf: str
    is_fake: bool | None = None


Dep: TypeAlias = MemoryDep | StarDep | WeakDep

# ---------------------------------------------------------------------------------- layouts


@dataclass(frozen=True, slots=True)
class DumpDevice:
    """`device(type='cuda', index=1)`."""

    type: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Memory of a tensor. `kind` is the class: FixedLayout, NonOwningLayout, Mutation..."""

    kind: str
    device: str
    dtype: str
    size: Bracketed
    stride: Bracketed
    offset: Index | None = None
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class NoneLayout:
    """A buffer without memory of its own; older dumps print no size and stride."""

    device: DumpDevice | None
    size: Bracketed | None = None
    stride: Bracketed | None = None


@dataclass(frozen=True, slots=True)
class MultiOutputLayout:
    """A result in several parts, which other nodes pick out."""

    device: DumpDevice | None


@dataclass(frozen=True, slots=True)
class OtherLayout:
    """A layout of a class or shape unknown here, as text."""

    text: str


Layout: TypeAlias = TensorLayout | NoneLayout | MultiOutputLayout | OtherLayout

# ---------------------------------------------------------------------------------- buffers


@dataclass(frozen=True, slots=True)
class User:
    """Who uses a buffer: a node, or with class None the pseudo-node OUTPUT."""

    node: str
    node_class: str | None
    can_inplace: bool
    is_weak: bool | None = False
    names_group: bool = False

    @property
    def is_output(self) -> bool:
        """Whether the graph returns the buffer."""
        return self.node_class is None


@dataclass(frozen=True, slots=True)
class DumpBuffer:
    """One output of a node."""

    name: str
    ir_class: str
    layout: Layout
    aliases: tuple[str, ...] = ()
    mutations: tuple[str, ...] = ()
    users: tuple[User, ...] = ()
    unknown: tuple[UnknownNodeLine, ...] = ()
    line: int = field(default=0, compare=False)


# -------------------------------------------------------------------------------- loop bodies


@dataclass(frozen=True, slots=True)
class ValueName:
    """The result of an earlier statement, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class QuotedText:
    """A string such as a buffer name or the kind of a reduction."""

    text: str


@dataclass(frozen=True, slots=True)
class DumpDType:
    """`torch.float32`, without the `torch.`."""

    name: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A number, None, True, `<function ...>`: anything else, verbatim."""

    text: str


@dataclass(frozen=True, slots=True)
class Pack:
    """A tuple or list of arguments."""

    items: tuple[Argument, ...]
    brackets: Literal["[]", "()"] = "()"


Argument: TypeAlias = ValueName | QuotedText | DumpDType | Verbatim | Pack
Keywords: TypeAlias = tuple[tuple[str, Argument], ...]


@dataclass(frozen=True, slots=True)
class GetIndex:
    """`get_index_1 = self.get_index('index0')`."""

    result: str
    index: str


@dataclass(frozen=True, slots=True)
class OpCall:
    """`add = ops.add(load, load_1)`; keywords print with spaces around the sign."""

    result: str
    op: str
    args: tuple[Argument, ...]
    keywords: Keywords = ()


@dataclass(frozen=True, slots=True)
class SetIndirect:
    """`set_indirect0 = self.set_indirect0(load)`: the symbol `indirect0` is this value from now."""

    result: str
    slot: int
    value: Argument


@dataclass(frozen=True, slots=True)
class MaskedCall:
    """`masked_subblock1 = self.masked_subblock1(lt, 0.0)`: the block where the mask holds."""

    result: str
    block: str
    mask: Argument
    other: Argument


@dataclass(frozen=True, slots=True)
class BodyCall:
    """A call of any other part of the body, such as `self.scan0((torch.float32,), (load,))`."""

    result: str
    target: str
    args: tuple[Argument, ...]
    keywords: Keywords = ()


@dataclass(frozen=True, slots=True)
class GetItem:
    """`getitem = reduction[0]`."""

    result: str
    source: str
    position: int


@dataclass(frozen=True, slots=True)
class Return:
    """`return store`, the last statement of every block."""

    value: Argument


@dataclass(frozen=True, slots=True)
class UnknownStatement:
    """A statement of a form unknown here, without its indentation."""

    text: str
    line: int = field(default=0, compare=False)


Statement: TypeAlias = (
    GetIndex | OpCall | SetIndirect | MaskedCall | BodyCall | GetItem | Return | UnknownStatement
)


@dataclass(frozen=True, slots=True)
class BodyBlock:
    """`def body(self, ops):` or `def masked_subblock1(self, ops):`."""

    name: str
    statements: tuple[Statement, ...]
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LoopBody:
    """Loop variables with their ranges, named index expressions, and the code."""

    ranges: Ranges
    indices: tuple[tuple[str, Index], ...]
    blocks: tuple[BodyBlock, ...]
    unknown: tuple[UnknownNodeLine, ...] = ()
    line: int = field(default=0, compare=False)


# ------------------------------------------------------------------------------------- nodes


@dataclass(frozen=True, slots=True)
class DumpCall:
    """A call of something that is not a loop; `kernel` is `extern_kernels.mm`, `None` ..."""

    kernel: str


@dataclass(frozen=True, slots=True)
class DumpLoop:
    """An iteration space and what happens in it; templates have no body.

    `layouts` repeat as in the file. `aliases` and `mutations` stand here only in old dumps.
    """

    device: str
    iteration: Bracketed | Index
    sizes: Bracketed | Index
    layouts: tuple[tuple[str, Layout], ...] = ()
    body: LoopBody | None = None
    aliases: tuple[str, ...] = ()
    mutations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Members:
    """The nodes of a group: fused, foreach, mix-order ..."""

    snodes: tuple[DumpNode, ...]


Detail: TypeAlias = DumpCall | DumpLoop | Members


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A section after the node: `op0 Triton code:` and its lines, verbatim."""

    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DumpNode:
    """One scheduler node. `arguments` are the IR class, or for a group the classes of members.

    `users` is used instead of `outputs` by dumps of torch 2.4 and older, where node and buffer
    are one thing.
    """

    name: str
    node_class: str
    arguments: tuple[str, ...]
    writes: tuple[Dep, ...]
    unmet: tuple[Dep, ...]
    met: tuple[Dep, ...]
    outputs: tuple[DumpBuffer, ...] = ()
    detail: Detail | None = None
    min_input_distance: int | None = None
    max_input_distance: int | None = None
    users: tuple[User, ...] | None = None
    code: DeviceCode | None = None
    unknown: tuple[UnknownNodeLine, ...] = ()
    line: int = field(default=0, compare=False)

    @property
    def kind(self) -> Literal["extern", "nop", "loop", "group", "other"]:
        """What the node is, from what it contains."""
        if isinstance(self.detail, DumpCall):
            return "extern"
        if isinstance(self.detail, DumpLoop):
            return "loop"
        if isinstance(self.detail, Members):
            return "group"
        return "nop" if self.node_class.startswith("Nop") else "other"

    @property
    def snodes(self) -> tuple[DumpNode, ...]:
        """The members of a group, else nothing."""
        return self.detail.snodes if isinstance(self.detail, Members) else ()

    def walk(self) -> Iterator[DumpNode]:
        """Yield this node, then its members at every depth."""
        yield self
        for member in self.snodes:
            yield from member.walk()

    def leaves(self) -> Iterator[DumpNode]:
        """Yield the nodes that are no groups, in order."""
        return (node for node in self.walk() if node.kind != "group")


@dataclass(frozen=True, slots=True)
class DumpSection:
    """The nodes of one graph at one moment; a log has several, a file one.

    In a log, `title` is BEFORE FUSION or AFTER FUSION, every line begins with `prefix`, and
    `foreign` are the lines of other messages that stand before.
    """

    nodes: tuple[DumpNode, ...]
    title: str = ""
    prefix: str = ""
    foreign: tuple[str, ...] = ()
    final_newlines: int = 3
    line: int = field(default=1, compare=False)

    def walk(self) -> Iterator[DumpNode]:
        """Yield every node, groups before their members."""
        for node in self.nodes:
            yield from node.walk()

    def leaves(self) -> Iterator[DumpNode]:
        """Yield every node that is no group."""
        for node in self.nodes:
            yield from node.leaves()


@dataclass(frozen=True, slots=True)
class InductorDump:
    """A whole file: what it says (`sections`), how it spells it (`dialect`), what is odd in it."""

    dialect: Dialect
    sections: tuple[DumpSection, ...]
    foreign_end: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), compare=False)

    @property
    def last(self) -> DumpSection:
        """The only section of a file; of a log the last one, normally after fusion."""
        return self.sections[-1]

    @property
    def nodes(self) -> tuple[DumpNode, ...]:
        """The top nodes of the last section."""
        return self.last.nodes

    @property
    def unknown_count(self) -> int:
        """How many lines were kept without being understood."""
        return sum(1 for finding in self.findings if finding.code == "IND004")
