"""From a program to a memory problem: who needs bytes, at which steps, and who shares them.

    step      0     1     2     3        One block for each storage; views lie in their root's.
    t         ######+                    A hand-over in place makes one group, one slot: u is
    u               ######+              written where t is read for the last time.
    out                   #######...     An output has memory of its own, where temporaries may
    (out)     ~~~~~~~~~~~~               live before it is born, if that is asked for.
    x         ======~~~~~~~~~~~~~...     So is a donated input after its last use.

Lives and hand-overs come from the liveness engine and nothing is decided again here. They do not
depend on run-time sizes, bytes do: `ProgramProblem.at` gives the same problem for other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from treadle.analysis.liveness import Liveness, LivenessPolicy
from treadle.core.errors import UsageError
from treadle.index import Facts, Symbol, evaluate, hint
from treadle.ir.devices import alignment_for
from treadle.ir.program import Program
from treadle.ir.types import Buffer
from treadle.memory.problem import Block, Pool, Problem


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What may lie where."""

    alignment: int | None = None
    """Offsets are multiples of this; None: 64 on the CPU, 256 elsewhere."""
    pack_into_outputs: bool = False
    """Temporaries may live in outputs that are not born yet."""
    outputs_in_arena: bool = False
    """Outputs lie in the arena too, which the caller then keeps as a whole."""
    pack_into_donated: bool = True
    """Temporaries may live in donated inputs after their last use."""
    device: str | None = None
    """The device whose memory is planned; None: the one with the most bytes to place."""

    def __post_init__(self) -> None:
        if self.pack_into_outputs and self.outputs_in_arena:
            raise UsageError("outputs lie in the arena or take in temporaries, not both")
        if self.alignment is not None and self.alignment < 1:
            raise UsageError(f"an alignment of {self.alignment} is less than 1")


@dataclass(frozen=True, slots=True)
class Suballocation:
    """A storage to be placed, before its bytes are known."""

    storage: str
    lower: int
    upper: int
    group: str | None = None
    host: str | None = None
    """The pool it must lie in, at offset 0."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """An output or a donated input, and the steps in which others may use its bytes."""

    storage: str
    lower: int
    upper: int


@dataclass(frozen=True)
class ProgramProblem:
    """The memory problem of a program, for the likely run-time sizes and for any others."""

    live: Liveness
    options: PlanOptions
    suballocations: tuple[Suballocation, ...]
    hosts: tuple[HostMemory, ...]
    outputs: tuple[str, ...]
    """Storages that the caller gets, whether they lie in the arena or not."""
    elsewhere: tuple[str, ...]
    """Storages on other devices: each has memory of its own."""
    steps: tuple[str, ...]
    """What runs at each time."""
    alignment: int
    problem: Problem = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "problem", self.at({}))

    @property
    def program(self) -> Program:
        """The program that this is the problem of."""
        return self.live.program

    def at(self, sizes: Mapping[str, int]) -> Problem:
        """The problem for run-time sizes by name; those not given count with their hints."""
        values = _values(self.program, sizes)
        return self._with(lambda b: _bytes_at(b, values, self.live.policy.count_gaps))

    def widest(self) -> Problem | None:
        """A problem whose plans are right for every size in range; None if some have no limit.

        Every block counts with the most it can need. Hosts must have that size always.
        """
        limits = {t.storage: self._most(t.storage) for t in self.suballocations}
        limits |= {h.storage: self._always(h.storage) for h in self.hosts}
        if any(limits[t.storage] is None for t in self.suballocations):
            return None
        known = {name: 0 if size is None else size for name, size in limits.items()}
        if any(t.host is not None and self._always(t.host) is None for t in self.suballocations):
            return None
        return self._with(lambda b: known[b.name])

    def bytes_of(self, storage: str, sizes: Mapping[str, int] | None = None) -> int:
        """The bytes a storage needs for some run-time sizes, as they are counted here."""
        values = _values(self.program, sizes or {})
        buffer = self.program.by_name[storage]
        return _bytes_at(buffer, values, self.live.policy.count_gaps)

    def _with(self, size_of: Callable[[Buffer], int]) -> Problem:
        of = self.program.by_name
        pools = []
        for h in self.hosts:
            size = size_of(of[h.storage])
            if size:
                pools.append(Pool(h.storage, size, ((h.lower, h.upper),)))
        there = {pool.name for pool in pools}
        blocks = []
        for t in self.suballocations:
            size = size_of(of[t.storage])
            if not size or (t.host is not None and t.host not in there):
                continue  # what has no bytes needs no place
            fixed = None if t.host is None else 0
            align = 1 if t.host is not None else self.alignment
            blocks.append(
                Block(t.storage, t.lower, t.upper, size, align, (), fixed, t.host, t.group)
            )
        return Problem(tuple(blocks), tuple(pools), None, self.program.name)

    def _most(self, storage: str) -> int | None:
        """The most bytes a storage can need, if there is a limit."""
        buffer = self.program.by_name[storage]
        facts, layout = Facts(), buffer.layout
        if not all(s.value is not None or facts.interval(s).nonnegative for s in layout.strides):
            return None
        whole = buffer.storage_numel if self.live.policy.count_gaps else buffer.numel
        high = [facts.interval(e).hi for e in (whole, layout.offset)]
        if high[0] is None or high[1] is None:
            return None
        return max(high[0], high[1], 0) * buffer.dtype.itemsize

    def _always(self, storage: str) -> int | None:
        """The bytes of a storage whose size does not change from run to run."""
        buffer = self.program.by_name[storage]
        whole = buffer.storage_numel if self.live.policy.count_gaps else buffer.numel
        return None if whole.value is None else max(0, whole.value) * buffer.dtype.itemsize


def problem_of(
    program: Program, *, policy: LivenessPolicy | None = None, options: PlanOptions | None = None
) -> ProgramProblem:
    """The memory problem of a program in its present order.

    `policy` says what is counted; the plan can be run only if gaps between elements count.
    """
    chosen = options or PlanOptions()
    live = Liveness(program, policy)
    device = chosen.device or _main_device(live)
    builder = _ProblemBuilder(live, chosen, device)
    suballocations = tuple(builder.suballocations())
    alignment = chosen.alignment or alignment_for(device)
    return ProgramProblem(
        live=live,
        options=chosen,
        suballocations=suballocations,
        hosts=tuple(builder.hosts()),
        outputs=tuple(sorted(builder.outputs, key=builder.declared.__getitem__)),
        elsewhere=tuple(builder.elsewhere),
        steps=tuple(live.name_of(step[0]) for step in live.timeline.order()),
        alignment=alignment,
    )


class _ProblemBuilder:
    """The lives of one program, cut into suballocations and hosts."""

    def __init__(self, live: Liveness, options: PlanOptions, device: str) -> None:
        program = live.program
        self.live, self.options = live, options
        self.declared = {b.name: k for k, b in enumerate(program.buffers)}
        self.inputs = {program.storage_of(n) for n in program.inputs}
        given = {program.storage_of(n) for n in program.outputs} - self.inputs
        place = {member: k for k, step in enumerate(live.timeline.order()) for member in step}
        self.end = max(1, len(live.timeline.order()))
        self.lives: dict[str, tuple[int, int]] = {}
        self.elsewhere: list[str] = []
        for s, life in live.timeline.lives():
            if life.host is None or life.last is None:
                continue  # in registers, or never needed
            if program.by_name[s.name].device != device:
                if s.name not in self.inputs:
                    self.elsewhere.append(s.name)
                continue
            first = 0 if life.first is None else place[life.first]
            last = place[life.last] + 1 if s.freeable else self.end
            self.lives[s.name] = first, max(last, first + 1)
        self.outputs = given & self.lives.keys()
        self.reused_by = live.in_place_reuse()

    def suballocations(self) -> Iterator[Suballocation]:
        """Every storage that gets a place, chains of hand-overs as groups."""
        takers = set(self.reused_by.values())
        for name in self.lives:
            if name in takers:
                continue  # it comes with the one that it takes over from
            chain = [name]
            while chain[-1] in self.reused_by:
                chain.append(self.reused_by[chain[-1]])
            yield from self._chain(chain)

    def _chain(self, chain: list[str]) -> Iterator[Suballocation]:
        root, last = chain[0], chain[-1]
        if last in self.outputs:
            chain = chain[:-1]
            if self.options.outputs_in_arena and root not in self.inputs:
                yield from self._group([*chain, last], None)
                return
            if self.options.outputs_in_arena:
                yield from self._group([last], None)
            elif self._lives_in_output(chain, last):
                yield from self._group([*chain, last], last)
                return
        if root in self.inputs:
            if len(chain) > 1:
                # The rest of its bytes is in use while the first that reuses it is written.
                yield from self._group(chain, root)
            return
        yield from self._group(chain, None)

    def _group(self, chain: list[str], host: str | None) -> Iterator[Suballocation]:
        group = chain[0] if len(chain) > 1 else None
        for name in chain:
            lower, upper = self.lives[name]
            yield Suballocation(name, lower, upper, group, host)

    def _lives_in_output(self, chain: list[str], output: str) -> bool:
        """Whether an output takes in all that hands over to it: asked for, and fits at any size."""
        if not self.options.pack_into_outputs or not chain or chain[0] in self.inputs:
            return False
        of, facts = self.live.program.by_name, Facts()
        limit = of[output].storage_numel
        return all(
            of[name].dtype.itemsize == of[output].dtype.itemsize
            and facts.at_most(of[name].storage_numel, limit)
            for name in chain
        )

    def hosts(self) -> Iterator[HostMemory]:
        """The memory of others that temporaries may use, and when."""
        bound = {t.host for t in self.suballocations() if t.host is not None}
        for name, (lower, upper) in self.lives.items():
            if name in bound:
                yield HostMemory(name, 0, self.end)  # its own life is a block in it
            elif name in self.outputs and self.options.pack_into_outputs and lower > 0:
                yield HostMemory(name, 0, lower)
            elif name in self.inputs and self.options.pack_into_donated and upper < self.end:
                yield HostMemory(name, upper, self.end)


def _main_device(live: Liveness) -> str:
    program = live.program
    total: dict[str, int] = {}
    for s, _ in live.timeline.lives():
        device = program.by_name[s.name].device
        total[device] = total.get(device, 0) + (s.bytes if s.producer is not None else 0)
    return min(total, key=lambda d: (-total[d], d), default="cpu")


def _values(program: Program, sizes: Mapping[str, int]) -> dict[Symbol, int]:
    known = {s.name for s in program.sizes}
    for name in sizes:
        if name not in known:
            raise UsageError(f"the program has no run-time size {name!r}")
    return {s: sizes.get(s.name, hint(s)) for s in program.sizes}


def _bytes_at(buffer: Buffer, values: Mapping[Symbol, int], count_gaps: bool) -> int:
    """Bytes for given sizes; an empty tensor still reaches its offset, as a run has it."""
    layout = buffer.layout
    extents = [int(evaluate(n, values)) for n in layout.sizes]
    width = buffer.dtype.itemsize
    if not count_gaps:
        return max(0, int(evaluate(buffer.numel, values))) * width
    offset = int(evaluate(layout.offset, values))
    if 0 in extents:
        return max(0, offset) * width
    steps = [int(evaluate(s, values)) for s in layout.strides]
    reach = sum((n - 1) * s for n, s in zip(extents, steps, strict=True) if s > 0)
    return max(0, offset + reach + 1) * width
