"""The model of an XLA dump: allocations, used values, live ranges. Frozen data, one class a thing.

What XLA computes when it prints (the total, the size for people, `max N`, `preallocated-temp`) is
computed here too; a field `stated...` is set only where a file says otherwise, so that it can be
printed back and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from treadle.frontends.dumps import Finding

if TYPE_CHECKING:
    from treadle.frontends.xla_dump.hlo import Module
    from treadle.frontends.xla_dump.report import ReportLines

T = TypeVar("T")
ShapeIndex: TypeAlias = tuple[int, ...]
ALLOCATIONS, VALUES, LIVE = "allocations", "values", "live"


class HloPosition(NamedTuple):
    """An instruction and a place inside its (maybe nested) tuple; `()` is the whole."""

    name: str
    path: ShapeIndex

    def __str__(self) -> str:
        return f"{self.name}{index_text(self.path)}"


def index_text(index: ShapeIndex) -> str:
    """`{0,1}`, as XLA writes a shape index."""
    return "{" + ",".join(map(str, index)) + "}"


def human_size(size: int) -> str:
    """The size for people as XLA prints it: whole divisions by 1024, then one with digits."""
    if size < 1024:
        return f"{size}B"
    units = iter("MGTPE")
    unit = "K"
    while size >= 1 << 20 and (larger := next(units, None)):
        size, unit = size // 1024, larger
    return f"{size / 1024:.{1 if unit == 'K' else 2}f}{unit}iB"


@dataclass(frozen=True, slots=True)
class UnknownLine:
    """A line that the format may have gained since: kept, counted, printed where it stood."""

    text: str
    line: int


# ---------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class HloValue:
    """A value as XLA names it: `<659 custom-call.37.0{0} (phi) @0>`.

    `index` is None where it is not printed: the defining instruction has no tuple shape.
    """

    id: int
    name: str
    index: ShapeIndex | None = None
    is_phi: bool = False
    color: int | None = None

    @property
    def place(self) -> HloPosition:
        """The instruction and index that define it."""
        return HloPosition(self.name, self.index or ())

    def __str__(self) -> str:
        index = "" if self.index is None else index_text(self.index)
        phi = " (phi)" if self.is_phi else ""
        color = "" if self.color is None else f" @{self.color}"
        return f"<{self.id} {self.name}{index}{phi}{color}>"


@dataclass(frozen=True, slots=True)
class ValuePosition:
    """An instruction, and place in its tuple, that a value flows to."""

    name: str
    index: ShapeIndex | None = None

    @property
    def place(self) -> HloPosition:
        """The same with the index always there."""
        return HloPosition(self.name, self.index or ())


@dataclass(frozen=True, slots=True)
class HloUse:
    """Operand number `operand` of an instruction, or a place in that operand's tuple."""

    name: str
    operand: int
    index: ShapeIndex | None = None


@dataclass(frozen=True, slots=True)
class UsedValue:
    """One entry of `Used values`: where a value flows to, what uses it, what makes it."""

    value: HloValue
    positions: tuple[ValuePosition, ...]
    uses: tuple[HloUse, ...]
    instruction: str
    says_none: bool = False
    """An empty list of uses prints as `(none)`."""
    line: int = field(default=0, compare=False)


# ----------------------------------------------------------------------------- allocations


@dataclass(frozen=True, slots=True)
class Assigned:
    """A value in an allocation: `(size=16,offset=128): f32[4]{0}`."""

    value: HloValue
    size: int
    offset: int
    shape: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Recoloured:
    """A buffer of another colour that uses bytes of an allocation."""

    value: HloValue
    color: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """`parameter 3, shape |f32[4]| at ShapeIndex {}`."""

    number: int
    shape: str
    index: ShapeIndex


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block of memory and the values that live in it."""

    number: int
    size: int
    color: int = 0
    page: int | None = None
    parameter: Parameter | None = None
    output_shape: str | None = None
    is_constant: bool = False
    is_thread_local: bool = False
    is_live_out: bool = False
    values: tuple[Assigned, ...] = ()
    recoloured: tuple[Recoloured, ...] | None = None
    """None: the list is not printed."""
    extra: tuple[tuple[int, str], ...] = ()
    """Attributes that are not known, each with the number of known ones before it."""
    stated_temp: bool | None = None
    line: int = field(default=0, compare=False)

    @property
    def derived_temp(self) -> bool:
        """Whether it is scratch memory, by what else it is."""
        fixed = self.parameter is not None or self.is_live_out
        return not (fixed or self.is_thread_local or self.is_constant)

    @property
    def is_temp(self) -> bool:
        """Whether the file calls it `preallocated-temp`."""
        return self.derived_temp if self.stated_temp is None else self.stated_temp

    @property
    def is_donated(self) -> bool:
        """Whether it is a parameter whose memory the program may use and give back."""
        return self.parameter is not None and self.is_live_out

    @property
    def kind(self) -> str:
        """One word: parameter, donated, output, constant, thread-local or temp."""
        if self.parameter:
            return "donated" if self.is_live_out else "parameter"
        if self.is_live_out:
            return "output"
        return (
            "constant" if self.is_constant else "thread-local" if self.is_thread_local else "temp"
        )


KINDS = ("parameter", "donated", "output", "constant", "thread-local", "temp")


@dataclass(frozen=True, slots=True)
class AllocationSection:
    """`BufferAssignment:` and its allocations."""

    file: str
    allocations: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class ValueSection:
    """The total and `Used values:`; `joined` is the form of before November 2024.

    There the next value follows an instruction on the same line.
    """

    file: str
    used: tuple[UsedValue, ...]
    stated_total: int | None = None
    stated_human: str | None = None
    joined: bool = False
    total_line: int = field(default=0, compare=False)
    is_derived: bool = False
    """Not read from a file but worked out from the HLO text."""


# ------------------------------------------------------------------------------ live ranges


@dataclass(frozen=True, slots=True)
class HloLiveRange:
    """When a value lives, both ends included: `name{index}:start-end`."""

    name: str
    index: ShapeIndex
    start: int
    end: int
    line: int = field(default=0, compare=False)

    @property
    def place(self) -> HloPosition:
        """The value's defining place."""
        return HloPosition(self.name, self.index)


@dataclass(frozen=True, slots=True)
class PeakLine:
    """A value live at the peak; `index` from April 2025 on, `cumulative` from May 2025 on."""

    name: str
    index: ShapeIndex | None
    size: int
    cumulative: int | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TreeLine:
    """A row of the stack trace tree: depth 0 has no drawing, sizes are those of its subtree."""

    depth: int
    label: str
    percent: str
    total: int
    current: int
    remaining: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class StackTree:
    """`Stack trace breakdown for peak usage`, from July 2025 on."""

    total: int
    rows: tuple[TreeLine, ...]
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PrintedPeak:
    """`Live ranges at N (peak):` and what is live there."""

    moment: int
    lines: tuple[PeakLine, ...]
    tree: StackTree | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LiveSection:
    """`HloLiveRange`: the instructions in order, the live ranges, the peak."""

    file: str
    sequence: tuple[str, ...]
    ranges: tuple[HloLiveRange, ...]
    peak: PrintedPeak | None = None
    no_peak: str | None = None
    """The line that stands instead of a peak if sizes have no bound."""
    stated_max: int | None = None
    line: int = field(default=0, compare=False)
    sequence_line: int = field(default=0, compare=False)
    is_derived: bool = False
    """Not read from a file but worked out from the order of the HLO text."""


# ------------------------------------------------------------------------------------ dumps


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a dump: which sections it holds, in order, and lines nobody understood."""

    name: str
    sections: tuple[str, ...]
    newline: str = "\n"
    unknown: tuple[UnknownLine, ...] = ()


@dataclass(frozen=True)
class XlaDump:
    """All that was found of one buffer assignment, from one file or from several."""

    files: tuple[SourceFile, ...]
    assignment: AllocationSection | None = None
    values: ValueSection | None = None
    live: LiveSection | None = None
    module: Module | None = None
    report: ReportLines | None = None
    findings: tuple[Finding, ...] = ()
    _memo: dict[object, Any] = field(
        default_factory=dict, init=False, compare=False, repr=False, hash=False
    )

    def derive(self, question: Callable[[XlaDump], T]) -> T:
        """`question(self)`, computed once: a frozen dump cannot make an answer stale."""
        if question not in self._memo:
            self._memo[question] = question(self)
        answer: T = self._memo[question]
        return answer

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations; none if their file is missing."""
        return self.assignment.allocations if self.assignment else ()

    @property
    def used(self) -> tuple[UsedValue, ...]:
        """The used values; none if their file is missing."""
        return self.values.used if self.values else ()

    @property
    def total_bytes(self) -> int:
        """The sum of all allocations."""
        return sum(allocation.size for allocation in self.allocations)

    @property
    def temp_bytes(self) -> int:
        """The bytes of scratch memory."""
        return sum(a.size for a in self.allocations if a.kind == "temp")

    @property
    def unknown_count(self) -> int:
        """How many lines and attributes were kept without being understood."""
        lines = sum(len(file.unknown) for file in self.files)
        return lines + sum(len(a.extra) for a in self.allocations)

    def assigned(self) -> Iterator[tuple[Allocation, Assigned]]:
        """Every value with the allocation it is in."""
        for allocation in self.allocations:
            for one in allocation.values:
                yield allocation, one

    @property
    def range_of(self) -> Mapping[HloPosition, HloLiveRange]:
        """Live ranges by the defining place of their value."""
        return self.derive(_ranges_by_place)

    def unknown_lines(self) -> Iterator[tuple[str, UnknownLine]]:
        """Every line that was kept, with its file."""
        for file in self.files:
            for line in file.unknown:
                yield file.name, line


def _ranges_by_place(dump: XlaDump) -> dict[HloPosition, HloLiveRange]:
    return {one.place: one for one in dump.live.ranges} if dump.live else {}
