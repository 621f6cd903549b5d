"""From a lowered program to what a package holds: storages in blocks, steps as instructions.

Nothing here depends on run-time sizes but through expressions: the package computes them. Inputs,
weights and results lie where the caller says; everything else shares one piece of memory, for
which a plan is made here at the likely sizes and by the package itself at all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from treadle.codegen.host_c.instructions import HostFunction, Instruction, LetGo, RunKernels
from treadle.codegen.host_c.render import BACK_AT
from treadle.codegen.package_c.numbers import NumberTable, bytes_of
from treadle.codegen.package_c.tables import (
    ALIGNMENT,
    MOST_DIMS,
    Constraint,
    PackedBlock,
    PackedGraph,
    PackedSize,
    PackedTensor,
)
from treadle.core.errors import UsageError
from treadle.index import Expr, Symbol, evaluate, hint, substitute
from treadle.ir.types import BufferKind, Layout
from treadle.memory.portfolio import solve
from treadle.memory.problem import Block, Problem
from treadle.runtime.launch_plan import CallStep, ClearStep, LaunchStep, Step
from treadle.runtime.launch_shape import LaunchShape

REFUSED = "PKG003"
SEARCH_STEPS = 2_000
MOST_FUNCTIONS = 64
"""Room in the table of numbers for what a package calls."""


@dataclass(frozen=True)
class NamedStorage:
    """A storage by the name that people know it by."""

    name: str
    storage: str


@dataclass(frozen=True)
class NamedResult:
    """A result: a storage, seen through a layout."""

    name: str
    storage: str
    layout: Layout


@dataclass(frozen=True)
class PackRequest:
    """What is to be packed, and what it is called."""

    name: str
    inputs: Sequence[NamedStorage]
    weights: Sequence[NamedStorage] = ()
    results: Sequence[NamedResult] = ()
    changed: frozenset[str] = frozenset()
    """Inputs and weights that a run writes into."""
    size_names: Mapping[str, str] = field(default_factory=dict)
    """What people call sizes."""
    constraints: Sequence[Constraint] = ()
    torch_version: str | None = None


@dataclass(frozen=True)
class Calls:
    """How calls of a library become instructions: whoever knows the library says it."""

    adopted: frozenset[str]
    """The storages that calls make themselves."""
    write: Callable[[int, CallStep, Packing], list[Instruction]]


class Packing:
    """One program on its way into a package."""

    def __init__(
        self,
        shape: LaunchShape,
        kernel_storages: Sequence[str],
        request: PackRequest,
        calls: Calls | None = None,
    ) -> None:
        self.shape, self.request, self.calls = shape, request, calls
        self.program = shape.program
        self.adopted = frozenset() if calls is None else calls.adopted
        tensors = [b for b in self.program.buffers if b.kind is BufferKind.TENSOR]
        self.layouts = {b.name: b.layout for b in tensors if b.view_of is None}
        touched = [name for name in self.layouts if name in shape.rows]
        shown = [r.storage for r in request.results]  # inputs among them that no step touches
        named = dict.fromkeys([*kernel_storages, *touched, *shown])
        self.slots = {n: k for k, n in enumerate(named)}
        self.numbers = NumberTable(BACK_AT + 1 + MOST_FUNCTIONS)
        self.handles: dict[str, int] = {}
        self.functions: dict[str, int] = {}
        self.views = 0
        self._kernel_number = {plan.name: k for k, plan in enumerate(shape.host.kernels)}

    def packed(self) -> PackedGraph:
        """The whole; UsageError (PKG003) if some step cannot be carried out without Python."""
        request = self.request
        given = {one.storage for one in (*request.inputs, *request.weights)}
        results = tuple(self._results(given))
        direct = {one.storage for one in results if one.is_direct}
        sizes_at = self.numbers.at(*self.program.sizes) if self.program.sizes else self.numbers.base
        code = self._code({one.storage for one in results})
        kept = [n for n in dict.fromkeys(r.storage for r in results) if n in self.handles]
        lying = [n for n in self.slots if n not in self.adopted]
        blocks, total = self._blocks([n for n in lying if n not in given | direct])
        host = HostFunction(
            slots=len(self.slots),
            given=tuple([self.slots[n] for n in lying]),
            owned=(),
            handles=len(self.handles),
            views=self.views,
            functions=tuple(self.functions),
            sizes_at=sizes_at,
            instructions=tuple(code),
            results=tuple([self.handles[n] for n in kept]),
        )
        sizes = tuple(self._sizes())
        return PackedGraph(
            name=request.name,
            sizes=sizes,
            constraints=tuple([self._constraint(c) for c in request.constraints]),
            inputs=tuple([self._given(one) for one in request.inputs]),
            weights=tuple([self._given(one) for one in request.weights]),
            outputs=results,
            blocks=blocks,
            likely_sizes=tuple([hint(s.symbol) for s in sizes]),
            likely_bytes=total,
            host=host,
            given=tuple(lying),
            adopted=tuple(kept),
            base=self.numbers.base,
            numbers=tuple(self.numbers.numbers),
            torch_version=request.torch_version if self.functions else None,
        )

    # -- tensors ---------------------------------------------------------------------------
    def _given(self, one: NamedStorage) -> PackedTensor:
        buffer = self.program.by_name[one.storage]
        _refuse_many_dims(one.name, buffer.layout)
        return PackedTensor(
            one.name, one.storage, buffer.dtype, buffer.layout, one.storage in self.request.changed
        )

    def _results(self, given: set[str]) -> Iterator[PackedTensor]:
        storages = [r.storage for r in self.request.results]
        for r in self.request.results:
            _refuse_many_dims(r.name, r.layout)
            buffer = self.program.by_name[r.storage]
            is_whole = r.layout == buffer.layout and r.layout.offset.value == 0
            is_direct = (
                is_whole
                and storages.count(r.storage) == 1
                and r.storage not in given
                and r.storage not in self.adopted
            )
            yield PackedTensor(r.name, r.storage, buffer.dtype, r.layout, is_direct=is_direct)

    def _sizes(self) -> Iterator[PackedSize]:
        """Every run-time size, with the dimension of an input that tells it."""
        free: dict[Symbol, None] = dict.fromkeys(self.program.sizes)
        for symbol in free:
            shown_by = next(self._showing(symbol), None)
            if shown_by is None:
                raise UsageError(
                    f"size {symbol.name} cannot be read off any input: no dimension is just that",
                    code=REFUSED,
                )
            shown = self.request.size_names.get(symbol.name, symbol.name)
            low = 0 if symbol.lo is None else max(symbol.lo, 0)
            yield PackedSize(symbol, shown, low, symbol.hi, shown_by, symbol.divisor)

    def _constraint(self, one: Constraint) -> Constraint:
        """A constraint on the sizes of the program, which are known by their names."""
        known = {s.name: s for s in self.program.sizes}
        free = one.left.free | one.right.free
        if missing := [s.name for s in free if s.name not in known]:
            message = f"no input shows the size {missing[0]}, which a constraint speaks of"
            raise UsageError(message, code=REFUSED)
        own = {s: known[s.name] for s in free}
        return Constraint(substitute(one.left, own), one.relation, substitute(one.right, own))

    def _showing(self, symbol: Symbol) -> Iterator[tuple[int, int]]:
        for k, one in enumerate(self.request.inputs):
            for dim, n in enumerate(self.program.by_name[one.storage].layout.sizes):
                if n is symbol:
                    yield k, dim

    # -- steps -----------------------------------------------------------------------------
    def _code(self, results: set[str]) -> list[Instruction]:
        code: list[Instruction] = []
        run: list[int] = []

        def flush() -> None:
            if run:
                code.append(RunKernels(run[0], run[-1] + 1))
                run.clear()

        for k, step in enumerate(self.shape.steps):
            if isinstance(step, LaunchStep):
                number = self._kernel_number[step.kernel]
                if run and number != run[-1] + 1:
                    flush()
                run.append(number)
            elif isinstance(step, CallStep) and self.calls is not None:
                flush()
                code += self.calls.write(k, step, self)
            elif not isinstance(step, ClearStep):
                raise UsageError(_refusal(step), code=REFUSED)
            ended = [n for n in self.handles if self.shape.last(n) == k and n not in results]
            if ended:
                flush()
                code += [LetGo(self.handles[n]) for n in ended]
        flush()
        return code

    # -- memory ----------------------------------------------------------------------------
    def _blocks(self, names: Sequence[str]) -> tuple[tuple[PackedBlock, ...], int]:
        """What lies in the memory of a run, and where at the likely sizes."""
        chains = list(self._chains(set(names)))
        blocks, ends = [], []
        likely = {s: hint(s) for s in self.program.sizes}
        for k, chain in enumerate(chains):
            first, last = self._life(chain)
            size = max(int(evaluate(self._bytes(n), likely)) for n in chain)
            ends.append((first, last))
            blocks.append(Block(str(k), first, last + 1, size, ALIGNMENT))
        if not blocks:
            return (), 0
        solution = solve(Problem(tuple(blocks)), steps=SEARCH_STEPS)
        assert solution.plan is not None, "without a limit there is always a plan"
        offsets = {n: p.offset for n, p in solution.plan.placements.items()}
        packed = [
            PackedBlock(chain, tuple([self._bytes(n) for n in chain]), *ends[k], offsets[str(k)])
            for k, chain in enumerate(chains)
        ]
        return tuple(packed), solution.height

    def _life(self, chain: Sequence[str]) -> tuple[int, int]:
        rows = [self.shape.rows.get(n) for n in chain]
        first = min([0 if row is None else max(row.first, 0) for row in rows])
        last = max([self.shape.end if row is None else row.last for row in rows])
        is_seen = any(n in self.shape.outputs for n in chain)
        return first, self.shape.end if is_seen else max(last, first)

    def _chains(self, names: set[str]) -> Iterator[tuple[str, ...]]:
        """Temporaries that are written one over the other; most stand alone."""
        free = {n for n in names if n not in self.shape.outputs and n not in self.shape.pinned}
        follows = {a: b for a, b in self.shape.reuses.items() if a in free and b in free}
        followers = set(follows.values())
        for name in self.slots:
            if name not in names or name in followers:
                continue
            chain = [name]
            while chain[-1] in follows:
                chain.append(follows[chain[-1]])
            yield tuple(chain)

    def _bytes(self, name: str) -> Expr:
        layout, item = self.layouts[name], self.program.by_name[name].dtype.itemsize
        return bytes_of(layout.sizes, layout.strides, layout.offset, item)


def _refusal(step: Step) -> str:
    what = f"a call of {step.target}" if isinstance(step, CallStep) else "a step"
    return (
        f"{what} ('{step.operation}') cannot be packaged: nothing but kernels runs without Python"
    )


def _refuse_many_dims(name: str, layout: Layout) -> None:
    if len(layout.sizes) > MOST_DIMS:
        message = f"'{name}' has {len(layout.sizes)} dimensions; packages take up to {MOST_DIMS}"
        raise UsageError(message, code=REFUSED)
