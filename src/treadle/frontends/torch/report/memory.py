"""How much memory a compiled graph will hold, and for whom, as plain data.

memory = treadle.plan(model, x).graphs[0]
memory.peak_bytes, memory.lower_bound, memory.arena_bytes
memory.breakdown[0]      the largest piece at the peak: bytes, operator, the user's line
memory.at(s0=128)        the same for other run-time sizes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from treadle.core.tables import Section
from treadle.frontends.torch.lowering.origins import Provenance, Source
from treadle.frontends.torch.report.pages import Page, memory_sections
from treadle.ir.effects import effects
from treadle.memory.problem import ARENA
from treadle.runtime.device_memory import DeviceMemory, Span
from treadle.runtime.launch_plan import LaunchStep, Step
from treadle.runtime.launch_shape import LaunchShape

if TYPE_CHECKING:
    from treadle.frontends.torch.capture.compile import Built


@dataclass(frozen=True)
class Piece:
    """Bytes that are held at the peak, and by what."""

    bytes: int
    kind: str
    """`input`, `donated input`, `temporary`, `output`, `result of a call`, ..., `arena, idle`."""
    storage: str
    operator: str | None
    """Who makes it: an operator of ATen, of the forward if it was saved; None for other inputs."""
    source: str | None
    """The user's line, `file:line`, where torch knows it."""
    module: str | None = None
    """The module that makes it, `layers.0 (Linear)`."""
    name: str | None = None
    """What the user calls it, if it is an input: `layers.0.weight`."""


@dataclass(frozen=True, repr=False)
class GraphMemory(Page):
    """The memory of one graph at one set of run-time sizes, known without running it."""

    name: str
    peak_bytes: int
    """The most bytes held at once: inputs, outputs, the arena, results of calls."""
    peak_at: str
    """The kernel or call that runs at the peak."""
    lower_bound: int
    """No plan of this order of kernels and calls holds less."""
    arena_bytes: int
    arena_lower_bound: int
    input_bytes: int
    output_bytes: int
    allocated_bytes: int
    """The most that a run adds to what was there when it began."""
    breakdown: tuple[Piece, ...]
    """What is held at the peak, largest first; together it is the peak."""
    unknown: tuple[str, ...] = ()
    """Objects whose size only a run can tell; they are not counted."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The run-time sizes this holds for."""
    built: Built | None = field(default=None, repr=False, compare=False)

    @property
    def is_exact(self) -> bool:
        """Whether everything that a run allocates is counted, workspace inside calls aside."""
        return not self.unknown

    def at(self, **sizes: int) -> GraphMemory:
        """The same graph for other run-time sizes."""
        assert self.built is not None, "only a graph that was compiled can be planned again"
        return graph_memory(self.built, {**self.sizes, **sizes})

    def sections(self) -> Iterator[Section]:
        """What is held at the peak, as a table."""
        yield from memory_sections([self], (), True)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        names = [n for n in self.__dataclass_fields__ if n not in ("built", "breakdown")]
        found: dict[str, Any] = {n: getattr(self, n) for n in names}
        found["sizes"], found["unknown"] = dict(self.sizes), list(self.unknown)
        return {**found, "breakdown": [asdict(piece) for piece in self.breakdown]}


def graph_memory(built: Built, sizes: Mapping[str, int] | None = None) -> GraphMemory:
    """What a run of the graph will hold; by default for the sizes it was captured with."""
    runner = built.runner
    bound = runner.bound(sizes)
    plan, shape, steps = bound.memory, runner.shape, bound.plan.steps
    rows = [row for call in runner.signature.calls.values() for row in call.results]
    names = {name for _, name, is_object in rows if is_object}
    return GraphMemory(
        name=built.name,
        peak_bytes=plan.peak_bytes,
        peak_at=_step_name(steps[plan.peak_step]) if steps else "",
        lower_bound=plan.lower_bound,
        arena_bytes=plan.arena_bytes,
        arena_lower_bound=plan.arena_lower_bound,
        input_bytes=plan.input_bytes,
        output_bytes=plan.output_bytes,
        allocated_bytes=max(plan.peak_bytes - plan.input_bytes, 0),
        breakdown=tuple(_breakdown(plan, shape, built.provenance)),
        unknown=tuple(sorted(names)),
        sizes=dict(bound.sizes),
        built=built,
    )


def _step_name(step: Step) -> str:
    return step.kernel if isinstance(step, LaunchStep) else step.operation


def _breakdown(plan: DeviceMemory, shape: LaunchShape, known: Provenance) -> list[Piece]:
    makers = _makers(shape, known)
    here = [s for s in plan.spans.values() if s.bytes and _is_held(s, plan)]
    rows = [_piece(s.name, s.kind, s.bytes, makers, known) for s in here]
    if plan.arena is not None and _is_held(plan.arena, plan):
        rows += _in_arena(plan, makers, known)
    return sorted(rows, key=lambda piece: (-piece.bytes, piece.storage))


def _is_held(span: Span, plan: DeviceMemory) -> bool:
    return span.first <= plan.peak_step <= span.last


def _in_arena(
    plan: DeviceMemory, makers: Mapping[str, Source], provenance: Provenance
) -> Iterator[Piece]:
    """Who lies in the arena at the peak; the rest of it is idle there."""
    left, at = plan.arena_bytes, plan.peak_step
    for chain in plan.chains:
        now = [n for n in chain if plan.lives[n].first <= at <= plan.lives[n].last]
        place = plan.places.get(chain[0])
        if now and place is not None and place.pool == ARENA:
            size = max(plan.lives[n].bytes for n in chain)
            left -= size
            yield _piece(now[-1], "temporary", size, makers, provenance)
    if left > 0:
        yield Piece(left, "arena, idle", ARENA, None, None)


def _piece(
    name: str, kind: str, size: int, makers: Mapping[str, Source], provenance: Provenance
) -> Piece:
    made = makers.get(name) or provenance.saved(name)
    operator, line, module = made if made is not None else (None, None, None)
    return Piece(size, kind, name, operator, line, module, provenance.name_of(name))


def _makers(shape: LaunchShape, provenance: Provenance) -> dict[str, Source]:
    """For each storage that is made, the operator and the user's line behind its first writer."""
    found: dict[str, Source] = {}
    for op in shape.program.leaves:
        for name in effects(op).writes:
            storage = shape.program.storage_of(name)
            # Storages are called after the node whose value they hold.
            source = provenance.of(storage, op.origins)
            if storage not in shape.inputs and source is not None:
                found.setdefault(storage, source)
    return found
