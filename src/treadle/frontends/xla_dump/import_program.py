"""The schedule of a dump as a program skeleton: one opaque call for each instruction, in order.

    program = import_program(read_dump(path))
    Liveness(program).peak()

Buffers are the values that have a live range, under XLA's names (`fusion.3`, `call.1{0}`), as
tensors of their shape where the element type is ours and as bytes otherwise. Calls have the opcode
as target and touch what their instruction uses, makes or passes on. Values that keep one place
(see `sharing`) are views of the first of them, which later ones overwrite, so a loop is one pass
over its condition and body: enough to ask who lives when, not to compute anything.

What only names, groups or passes on values, or runs others that stand in the order themselves, is
there for the lives and marked `runs = false`. Nothing may be moved into or out of a loop or a
branch: what stands before one must come before all of it (`after`).
"""

from __future__ import annotations

from treadle.frontends.xla_dump.findings import require_whole
from treadle.frontends.xla_dump.import_plan import title_of
from treadle.frontends.xla_dump.model import Allocation, Assigned, HloPosition, XlaDump
from treadle.frontends.xla_dump.schedule import HloSchedule, schedule_of
from treadle.frontends.xla_dump.shapes import Shape, byte_size, parse_shape
from treadle.frontends.xla_dump.sharing import Sharing
from treadle.ir.build import ProgramBuilder
from treadle.ir.effects import RUNS
from treadle.ir.program import Program
from treadle.ir.types import Buffer, DType

ELEMENTS = {
    "pred": DType.BOOL, "s8": DType.I8, "s16": DType.I16, "s32": DType.I32, "s64": DType.I64,
    "u8": DType.U8, "u16": DType.U16, "u32": DType.U32, "u64": DType.U64,
    "f8e4m3fn": DType.F8E4M3, "f8e5m2": DType.F8E5M2, "f16": DType.F16, "bf16": DType.BF16,
    "f32": DType.F32, "f64": DType.F64,
}  # fmt: skip
SIDE_EFFECTS = frozenset(
    ["infeed", "outfeed", "send", "recv", "send-done", "recv-done", "rng-get-and-update-state"]
)
NOTHING_RUNS = frozenset([
    "add-dependency", "after-all", "async-update", "bitcast", "call", "conditional", "constant",
    "domain", "get-tuple-element", "opt-barrier", "optimization-barrier", "parameter", "pass",
    "tuple", "while",
])  # fmt: skip
"""Instructions for which nothing is launched: names, borders and what runs others."""
MOVES_DATA = ("all-", "collective-", "copy-", "ragged-", "recv", "reduce-scatter-", "send")
"""What an asynchronous start of these does, no other instruction of the order does for it."""
_ONLY_ALLOCATES = 'custom_call_target="AllocateBuffer"'


def import_program(dump: XlaDump, device: str = "cpu") -> Program:
    """The skeleton of the dump, or one InputError if parts are missing or do not fit together."""
    require_whole(dump)
    schedule = schedule_of(dump)
    assert schedule is not None, "a whole dump has a sequence"
    return _Import(dump, schedule, device).run()


class _Import:
    """Builds the program of one dump."""

    def __init__(self, dump: XlaDump, schedule: HloSchedule, device: str) -> None:
        self.dump, self.schedule = dump, schedule
        self.builder = ProgramBuilder(title_of(dump), device)
        self.sharing = Sharing(dump)
        self.buffers: dict[HloPosition, Buffer] = {}
        self.root_of: dict[HloPosition, HloPosition] = {}
        self.used = {one.value.place: one for one in dump.used}
        self.texts = {one.value.name: one.instruction for one in dump.used}

    def run(self) -> Program:
        """Declare the buffers, then the calls in order."""
        self._declare()
        touching: dict[str, list[HloPosition]] = {}
        made: dict[str, list[HloPosition]] = {}
        for used in self.dump.used:
            place = used.value.place
            if place not in self.buffers:
                continue
            made.setdefault(used.value.name, []).append(place)
            names = [p.name for p in used.positions]
            names += [u.name for u in used.uses if u.name not in self.schedule.calls]
            for name in dict.fromkeys(names):
                if name != used.value.name:
                    touching.setdefault(name, []).append(place)
                if name == self.schedule.entry_root:
                    self._return(place)
        written = {self.root_of[p] for p in self.buffers if p.name in self._inputs()}
        order = [n for n in dict.fromkeys(self.schedule.sequence) if n not in self._inputs()]
        after = self._after(order)
        for name in order:
            places = touching.get(name, []), made.get(name, [])
            self._call(name, *places, written, after[name])
        return self.builder.build()

    def _after(self, order: list[str]) -> dict[str, tuple[str, ...]]:
        """What each instruction must follow so that loops and branches keep what is in them.

        The first instruction past a border follows all since the border before; the others up to
        the next border follow it. If the borders are not known, everything stays in its order.
        """
        frozen = not self.schedule.is_exact
        borders = sorted(self.schedule.borders, reverse=True)
        found: dict[str, tuple[str, ...]] = {}
        gate: str | None = None
        since: list[str] = []
        for name in order:
            is_past = bool(borders) and borders[-1] <= self.schedule.time[name]
            while borders and borders[-1] <= self.schedule.time[name]:
                borders.pop()
            if is_past or frozen:
                found[name] = tuple(since)
                gate, since = name, [name]
            else:
                found[name] = (gate,) if gate is not None else ()
                since.append(name)
        return found

    def _inputs(self) -> frozenset[str]:
        return self.schedule.entry_parameters

    def _return(self, place: HloPosition) -> None:
        name = self.buffers[place].name
        if name not in self.builder.outputs:
            self.builder.returns(name)

    # -- buffers ---------------------------------------------------------------------------
    def _declare(self) -> None:
        ranges = self.dump.range_of
        held = [pair for pair in self.dump.assigned() if pair[1].value.place in ranges]
        # A group's first value owns the storage.
        held.sort(key=lambda pair: (ranges[pair[1].value.place].start, pair[1].value.id))
        first: dict[HloPosition, HloPosition] = {}
        for allocation, one in held:
            place = one.value.place
            if place in self.buffers:
                continue
            leader = self.sharing.group_of(place)
            root = self.root_of[place] = first.setdefault(leader, place)
            self.buffers[place] = self._buffer(allocation, one, root)

    def _buffer(self, allocation: Allocation, one: Assigned, root: HloPosition) -> Buffer:
        place = one.value.place
        name = str(place) if one.value.index is not None else place.name
        element, dims = _tensor(one)
        if root != place:
            return self.builder.view(name, self.buffers[root], dims, element=element)
        if place.name in self._inputs():
            donated = allocation.is_donated
            return self.builder.input(name, element, dims, donated=donated)
        return self.builder.buffer(name, element, dims)

    # -- calls -----------------------------------------------------------------------------
    def _call(
        self,
        name: str,
        reads: list[HloPosition],
        makes: list[HloPosition],
        written: set[HloPosition],
        after: tuple[str, ...],
    ) -> None:
        text = self.texts.get(name, "")
        opcode = self.schedule.opcode.get(name, "pass")
        writes, mutates = [], []
        for place in makes:
            root = self.root_of[place]
            if root not in written:
                writes.append(self.buffers[place])
                written.add(root)
            elif opcode == "parameter":
                reads = [*reads, place]  # the same bytes under another name
            else:
                mutates.append(self.buffers[place])
        idle = not self._runs(name, opcode, text, makes)
        self.builder.extern(
            opcode,
            [self.buffers[place] for place in reads if self.root_of[place] in written],
            writes,
            mutates=mutates,
            attrs={RUNS: False} if idle else {},
            name=name,
            after=after,
            has_side_effects=self._acts(opcode, text, makes) and not idle,
        )

    def _acts(self, opcode: str, text: str, makes: list[HloPosition]) -> bool:
        """Whether an instruction is needed for more than the values that others use.

        XLA runs nothing in vain: whose values nobody uses says when a loop ends, or the like.
        """
        if opcode in SIDE_EFFECTS or "has_side_effect=true" in text:
            return True
        return all(self._is_unused(place) for place in makes)

    def _is_unused(self, place: HloPosition) -> bool:
        used = self.used.get(place)
        if used is None or used.uses:
            return False
        return all(position.name != self.schedule.entry_root for position in used.positions)

    def _runs(self, name: str, opcode: str, text: str, makes: list[HloPosition]) -> bool:
        """Whether something is launched for an instruction."""
        if opcode in NOTHING_RUNS or opcode.endswith("-done") or _ONLY_ALLOCATES in text:
            return False
        if opcode.endswith("-start") and not opcode.startswith(MOVES_DATA):
            # What it wraps makes the result, if it stands in the order itself.
            return HloPosition(name, (1,)) in makes
        return True


def _tensor(one: Assigned) -> tuple[DType, list[int]]:
    """The element type and sizes of a value; bytes where its shape does not say them."""
    shape = parse_shape(one.shape)
    if isinstance(shape, Shape) and shape.element in ELEMENTS and byte_size(shape) == one.size:
        element = ELEMENTS[shape.element]
        dims = [n for n in shape.dims if n is not None]
        count = 1
        for n in dims:
            count *= n
        if count * element.itemsize == one.size:
            return element, dims
    return DType.U8, [one.size]
