"""What an operation costs: bytes moved, work done, and a roofline time from a device table.

    time = max(bytes / bandwidth, work / peak) + launch

Kernels whose loops are bound to a GPU are looked at more closely (`gpu_time`).

The numbers come from `devices`; a calibration file replaces those it names. The model is
deterministic and asks nothing of the machine it runs on, so decisions can be reproduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

from treadle.analysis.access import Access, accesses
from treadle.analysis.deps import dependences
from treadle.analysis.devices import DEVICES, Device, read_calibration
from treadle.analysis.gpu_time import scheduled_ns
from treadle.analysis.inplace import boundary
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.core.suggest import suggestion_notes
from treadle.index import Domain, IndexMap, hint
from treadle.ir.effects import effects, refs
from treadle.ir.program import (
    Call,
    Collective,
    Extern,
    Foreach,
    Fused,
    Group,
    Grouped,
    Kernel,
    Loop,
    MixOrder,
    MultiOutput,
    Nest,
    Nop,
    Operation,
    Program,
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.types import DType
from treadle.ir.typing import infer_types


@dataclass(frozen=True)
class Work:
    """What an operation moves and computes."""

    bytes_read: int
    bytes_written: int
    flops: float

    @property
    def bytes(self) -> int:
        """All bytes moved."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Work) -> Work:
        return Work(
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.flops + other.flops,
        )


NOTHING = Work(0, 0, 0.0)
ACCELERATOR = "h100"
"""The device that programs for `cuda` are costed for unless the options name a target."""


def work_of(program: Program, op: Operation) -> Work:
    """Bytes and flops of one operation; for a kernel group, what crosses its border."""
    return WORK[type(op)](program, op)


def bytes_moved(program: Program) -> int:
    """Bytes that all operations together read and write."""
    return sum(work_of(program, op).bytes for op in program.ops)


def _touched_bytes(
    program: Program, storage: str, width: int, touches: list[Access], numel: int
) -> int:
    """Bytes of one storage that accesses over `numel` points can touch: never more than it has."""
    # A loop may reach beyond the elements of a view, and into the gaps of a layout.
    whole = program.by_name[storage].storage_bytes // width
    reach = 0
    seen: set[IndexMap] = set()
    for a in touches:
        if a.map is None or a.is_indirect:
            all_of_it = hint(program.by_name[a.buffer].numel)
            reach += min(numel, whole) if a.map is not None else all_of_it
            continue
        if len(touches) > 1:
            # What several members touch in the same way, the kernel they are touches once.
            places = places_of(a.map)
            if places in seen:
                continue
            seen.add(places)
        points = 1
        for v, n in a.map.domain.items():
            if v in a.map.index.free:
                points *= hint(n)
        reach += points
    return min(reach, whole) * width


@lru_cache(maxsize=65536)
def places_of(touched: IndexMap) -> IndexMap:
    """The places that an access goes through, whatever its loops are called and however ordered.

    Loops along which it stays where it is are left out: in one body it is made once for them.
    """
    free = touched.index.free
    used = [(v, n) for v, n in touched.domain.items() if v in free]
    return IndexMap.of(Domain(used), *touched.results).set_form()


class _AtHand:
    """What members of one kernel stored so far: places of storages, and storages as a whole."""

    def __init__(self) -> None:
        self._whole: set[str] = set()
        self._places: set[tuple[str, int, IndexMap]] = set()
        self._storages: set[str] = set()

    def note_call(self, storages: Iterable[str]) -> None:
        """A call wrote these: what follows it in its kernel has them at hand, all of them."""
        self._whole.update(storages)

    def note(self, by_loop: Iterable[Access]) -> None:
        """What a loop stored in place of whatever was there before."""
        for a in by_loop:
            if a.is_write and not a.also_reads and a.map is not None and not a.is_indirect:
                self._storages.add(a.storage)
                self._places.add((a.storage, a.width, places_of(a.map)))

    def has(self, loaded: Access) -> bool:
        """Whether a load finds what an earlier member stored at the same point."""
        if loaded.storage in self._whole:
            return True
        if loaded.storage not in self._storages or loaded.map is None or loaded.is_indirect:
            return False
        return (loaded.storage, loaded.width, places_of(loaded.map)) in self._places


def _of_loops(
    program: Program, leaves: list[Loop], inside: frozenset[str], made: _AtHand | None
) -> Work:
    """Work of loops in one kernel; what is `made` when they begin they need not read."""
    known = program.derive(accesses)
    read: dict[tuple[str, int], list[Access]] = {}
    written: dict[tuple[str, int], list[Access]] = {}
    numel, flops = 0, 0.0
    for leaf in leaves:
        numel = max(numel, leaf.body.space.numel_hint)
        flops += _flops(leaf)
        for a in known[leaf.name]:
            if a.storage in inside or (made is not None and not a.is_write and made.has(a)):
                continue  # what an earlier member stored is still at hand
            # Views of one storage are one to what they touch; elements of other width are not.
            key = a.storage, program.by_name[a.buffer].dtype.itemsize
            (written if a.is_write else read).setdefault(key, []).append(a)
            if a.also_reads:
                read.setdefault(key, []).append(a)
        if made is not None:
            made.note(known[leaf.name])
    sums = [
        sum(_touched_bytes(program, *key, touches, numel) for key, touches in group.items())
        for group in (read, written)
    ]
    return Work(sums[0], sums[1], flops)


def _flops(op: Loop) -> float:
    """Arithmetic of a body: each statement once per point of the loops it may vary over."""
    points = op.body.space.numel_hint
    return sum(at.stmt.definition.work for at in op.body.walk()) * points


def _of_loop(program: Program, op: Operation) -> Work:
    assert isinstance(op, Loop)
    return _of_loops(program, [op], frozenset(), None)


def _of_call(program: Program, op: Operation) -> Work:
    return _work_of_call(program, op, frozenset())


def _work_of_call(program: Program, op: Operation, at_hand: frozenset[str]) -> Work:
    """A call in a kernel: storages `at_hand` move no bytes."""
    of = effects(op)
    parts = program.derive(parts_of_tuples)
    size = {
        n: 0 if program.storage_of(n) in at_hand else parts.get(n, program.by_name[n].tensor_bytes)
        for n in of.touched
    }
    fresh = program.derive(filled_first).get(op.name, frozenset())
    read = sum(size[n] for n in (*of.reads, *[m for m in of.mutates if m not in fresh]))
    return Work(read, sum(size[n] for n in (*of.writes, *of.mutates)), _call_flops(program, op))


def filled_first(program: Program) -> dict[str, frozenset[str]]:
    """For each call, what it changes that was only allocated before: nothing there to read."""
    empty: set[str] = set()
    found: dict[str, frozenset[str]] = {}
    for op in program.leaves:
        of = effects(op)
        if isinstance(op, Nop):
            empty.update(program.storage_of(n) for n in of.writes)
            continue
        fresh = frozenset(m for m in of.mutates if program.storage_of(m) in empty)
        if fresh:
            found[op.name] = fresh
        empty.difference_update(program.storage_of(n) for n in (*of.writes, *of.mutates))
    return found


def parts_of_tuples(program: Program) -> dict[str, int]:
    """For each tuple the bytes of the tensors that are taken out of it."""
    found: dict[str, int] = {}
    for op in program.leaves:
        if isinstance(op, MultiOutput):
            size = program.by_name[op.target].tensor_bytes
            found[op.source] = found.get(op.source, 0) + size
    return found


PRODUCTS = frozenset({"mm", "bmm", "addmm", "bias_addmm", "baddbmm", "matmul", "_addmm_activation"})
"""Calls that multiply matrices, by the last part of their name."""


def _call_flops(program: Program, op: Operation) -> float:
    """2*m*n*k for anything that looks like a matrix product, 0 for what is not known."""
    of = effects(op)
    target = getattr(op, "target", "")
    base = target.removesuffix(".default").removesuffix(".out").rpartition(".")[2]
    if base not in PRODUCTS or not of.writes:
        return 0.0
    out = program.by_name[of.writes[0]]
    # A summand comes first: the factors are the last two matrices among the arguments.
    shapes = [program.by_name[n].layout.sizes for n in refs(op.args)] if _is_call(op) else []
    factors = [sizes for sizes in shapes if len(sizes) > 1][-2:]
    return 2.0 * hint(out.numel) * hint(factors[0][-1]) if factors else 0.0


def _is_call(op: Operation) -> TypeGuard[Call]:
    return isinstance(op, Call)


def _of_nothing(program: Program, op: Operation) -> Work:
    return NOTHING


def _of_kernel(program: Program, op: Operation) -> Work:
    """One kernel: buffers that live only inside it cost nothing."""
    assert isinstance(op, Group)
    inside = internal_storages(program, op)
    made = _AtHand()
    total, loops = NOTHING, list[Loop]()
    for leaf in op.leaves:
        if isinstance(leaf, Loop):
            loops.append(leaf)
            continue
        total = total + _of_loops(program, loops, inside, made)
        loops = []
        if isinstance(leaf, Call):
            total = total + _work_of_call(program, leaf, inside)
            made.note_call(program.storage_of(n) for n in effects(leaf).writes)
    return total + _of_loops(program, loops, inside, made)


def internal_storages(program: Program, op: Operation) -> frozenset[str]:
    """The storages that only an operation, or the members of a group, touch."""
    deps, edge = dependences(program), program.derive(boundary)
    members = {deps.position[leaf.name] for leaf in op.leaves}
    storage_of, users = program.storage_of, deps.users
    touched = {storage_of(n) for leaf in op.leaves for row in effects(leaf) for n in row}
    return frozenset(
        [
            s
            for s in touched
            # Most are used by others too: first and last use say so soonest.
            if users[s][-1] in members
            and users[s][0] in members
            and s not in edge.outputs
            and s not in edge.inputs
            and members.issuperset(users[s])
        ]
    )


def _of_several(program: Program, op: Operation) -> Work:
    assert isinstance(op, Group)
    total = NOTHING
    for m in op.members:
        total = total + work_of(program, m)
    return total


def _of_built_kernel(program: Program, op: Operation) -> Work:
    """What its nests move, each by itself; around a call, what crosses the kernel's border."""
    assert isinstance(op, Kernel)
    return _of_kernel(program, op) if op.shape == "template" else _of_several(program, op)


WORK: Mapping[type[Operation], Callable[[Program, Operation], Work]] = {
    Loop: _of_loop,
    Nest: _of_loop,
    Extern: _of_call,
    Template: _of_call,
    UserKernel: _of_call,
    Collective: _of_call,
    Wait: _of_nothing,
    MultiOutput: _of_nothing,
    Nop: _of_nothing,
    Fused: _of_kernel,
    MixOrder: _of_kernel,
    Foreach: _of_several,
    Grouped: _of_several,
    Kernel: _of_built_kernel,
}


class Roofline:
    """The default cost model: the slower of memory and arithmetic, plus a launch."""

    def __init__(
        self,
        program: Program,
        device: Device | str | None = None,
        table: Mapping[str, Device] = DEVICES,
        accelerator: str = ACCELERATOR,
    ) -> None:
        self.program = program
        self.table = table
        self.accelerator = accelerator
        self.device = table[device] if isinstance(device, str) else device

    @classmethod
    def calibrated(cls, program: Program, file: str, device: str | None = None) -> Roofline:
        """A model whose device numbers come from a calibration file."""
        return cls(program, device, read_calibration(file))

    def device_of(self, op: Operation) -> Device:
        """The device an operation runs on: the one given, else by the kind in its name."""
        return self.machine(op.device)

    def machine(self, device: str) -> Device:
        """The figures of a device of the program: those given, else by the kind in its name."""
        if self.device is not None:
            return self.device
        return self.table["cpu" if device.startswith("cpu") else self.accelerator]

    def op_ns(self, op: object) -> float:
        """Predicted nanoseconds of an operation on its own."""
        assert isinstance(op, Operation)
        if isinstance(op, Wait | MultiOutput | Nop):
            return 0.0
        device = self.device_of(op)
        if isinstance(op, Kernel) and not op.device.startswith("cpu") and _is_scheduled(op):
            parts = [(m, work_of(self.program, m).bytes) for m in op.members if isinstance(m, Nest)]
            return scheduled_ns(parts, device, op.shape == "foreach")
        work = work_of(self.program, op)
        memory = work.bytes / device.gigabytes_per_second
        arithmetic = work.flops / self.peak_gflops(op)
        return max(memory, arithmetic) + device.launch_ns

    def peak_gflops(self, op: Operation) -> float:
        """What the arithmetic of an operation can reach on its device: the roof above it."""
        return self.device_of(op).gigaflops(_main_type(self.program, op), _is_matrix(op))

    def latency_ns(self, a: object, b: object) -> float:
        """What must pass between the end of a and the start of b (0: back to back)."""
        assert isinstance(a, Operation)
        assert isinstance(b, Operation)
        return 0.0 if a.device == b.device else self.device_of(b).transfer_latency_ns


def cost_model(program: Program, options: Options) -> Roofline:
    """The model the options ask for: for the machine they name, calibrated if they name a file."""
    table = DEVICES if options.cost_file is None else read_calibration(options.cost_file)
    accelerator = ACCELERATOR if options.target in (None, "cpu") else str(options.target)
    if accelerator not in table:
        notes = suggestion_notes(accelerator, sorted(table), "targets")
        raise UsageError(f"unknown target '{accelerator}'", code="OPT002", notes=notes)
    return Roofline(program, table=table, accelerator=accelerator)


def _is_scheduled(op: Kernel) -> bool:
    """Whether all of a kernel is nests whose loops have been bound to a machine."""
    return all(isinstance(m, Nest) and (m.schedule or not len(m.body.space)) for m in op.members)


def _is_matrix(op: Operation) -> bool:
    return any(isinstance(leaf, Extern | Template) for leaf in op.leaves)


def _main_type(program: Program, op: Operation) -> DType:
    """The widest floating point type an operation computes in; f32 if there is none."""
    found: list[DType] = []
    for leaf in op.leaves:
        if isinstance(leaf, Loop):
            types = infer_types(leaf.body, program.by_name)
            found.extend(t for t in types if isinstance(t, DType) and t.is_float)
        else:
            found.extend(
                program.by_name[n].dtype
                for n in effects(leaf).touched
                if program.by_name[n].dtype.is_float
            )
    return max(found, key=lambda t: t.bits, default=DType.F32)
