"""What an engineer wants to know first about a dump, as plain data.

Figures named like everywhere (`bytes_moved`, `peak_bytes`) are those that `treadle schedule` starts
from: bytes as they are moved, the peak without inputs, whose size a dump does not tell (`DUMP` in
`analysis.accounting`). Beside them stand the same counted as the peer counts and with inputs, and
what the peer's own estimators say by the sizes in the dump alone (`estimated_bytes`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from treadle.analysis.accounting import DUMP, OURS, PEER, figures
from treadle.analysis.duplicates import duplicates
from treadle.analysis.needed import needed_ops
from treadle.analysis.waits import exposed_waits
from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.estimates import Estimates
from treadle.frontends.inductor_dump.import_program import Imported, import_program, unpacked
from treadle.frontends.inductor_dump.model import DumpNode, DumpSection, InductorDump
from treadle.frontends.inductor_dump.rederive_users import body_of, buffers_of
from treadle.ir.effects import effects
from treadle.ir.program import Collective, Loop, Program
from treadle.ir.types import BufferKind


@dataclass(frozen=True)
class SectionSurvey:
    """Counts, figures and oddities of one section of a dump."""

    dialect: str
    nodes: int
    ops: int
    kernels: int
    kinds: dict[str, int]
    groups: dict[str, int]
    """Fused groups by number of members."""
    buffers: dict[str, int]
    inputs: int
    inputs_of_unknown_size: int
    outputs: int
    bytes_moved: int
    estimated_bytes: int
    """The peer's estimate by the sizes that the dump prints; `bytes_by_kind` adds up to it."""
    bytes_by_kind: dict[str, int]
    accesses_of_unknown_size: int
    peak_bytes: int
    peak_at: str | None
    peak_lower_bound: int
    unfused_peak_bytes: int
    counted_as_inductor: dict[str, object]
    counted_as_ours: dict[str, object]
    mutations: int
    mutated_more_than_once: list[str]
    aliases: int
    ordering_edges: int
    indirect_nodes: int
    indirect_accesses: int
    duplicate_stores: int
    duplicate_store_bytes: int
    twins: int
    """Loops inside groups that compute what another member computes."""
    work: dict[str, int]
    """How many loops only fill, copy or cast, and the bytes they write."""
    largest: list[tuple[str, int]]
    oddities: list[str]
    assumptions: dict[str, int]

    def to_json(self) -> dict[str, object]:
        """The survey with the keys all commands share."""
        return asdict(self)


def survey(
    dump: InductorDump, section: DumpSection | None = None, imported: Imported | None = None
) -> SectionSurvey:
    """The survey of a dump's last section, or of the one given (and what it was imported as)."""
    section = section if section is not None else dump.last
    imported = import_program(section) if imported is None else imported
    program = imported.program
    estimates = Estimates(section)
    mine, peer, ours = [figures(program, each) for each in (DUMP, PEER, OURS)]
    leaves = list(section.leaves())
    made = [b for leaf in leaves for b in buffers_of(leaf)]
    twice = [name for name, n in Counter(m for b in made for m in b.mutations).items() if n > 1]
    again = [d for d in duplicates(program) if not d.is_kept_apart]
    slots = [n for n in (_indirect_slots(leaf) for leaf in leaves) if n]
    return SectionSurvey(
        dialect=f"about torch {dump.dialect.version}",
        nodes=len(section.nodes),
        ops=len(leaves),
        kernels=mine.kernels,
        kinds=dict(Counter(_word(leaf) for leaf in leaves).most_common()),
        groups={f"{k} members": n for k, n in _group_sizes(section)},
        buffers=dict(Counter(_layout_word(b.layout) for b in made).most_common()),
        inputs=len(program.inputs),
        inputs_of_unknown_size=len(imported.unknown_inputs),
        outputs=sum(any(u.is_output for u in b.users) for b in made),
        bytes_moved=mine.bytes_moved,
        estimated_bytes=estimates.total,
        bytes_by_kind={k: n for k, n in estimates.by_kind.most_common() if n},
        accesses_of_unknown_size=estimates.unknown_accesses,
        peak_bytes=mine.peak_bytes,
        peak_at=mine.peak_at,
        peak_lower_bound=mine.peak_lower_bound,
        unfused_peak_bytes=figures(unpacked(program), DUMP).peak_bytes,
        counted_as_inductor={"bytes_moved": peer.bytes_moved, "peak_bytes": peer.peak_bytes},
        counted_as_ours={"bytes_moved": ours.bytes_moved, "peak_bytes": ours.peak_bytes,
                         "peak_at": ours.peak_at},
        mutations=sum(bool(b.mutations) for b in made),
        mutated_more_than_once=twice,
        aliases=sum(bool(b.aliases) for b in made),
        ordering_edges=sum(isinstance(d, model.WeakDep) for leaf in leaves for d in leaf.unmet),
        indirect_nodes=len(slots),
        indirect_accesses=sum(slots),
        duplicate_stores=len(again),
        duplicate_store_bytes=sum(d.bytes for d in again),
        twins=_twins(program),
        work=_work(program),
        largest=_largest(program),
        oddities=_oddities(program, imported),
        assumptions=dict(Counter(a.code for a in imported.assumptions)),
    )  # fmt: skip


def _word(node: DumpNode) -> str:
    words = {"loop": "loop", "nop": "allocation"}
    if node.kind in words and node.kind == "loop" and body_of(node) is None:
        return "template"
    return words.get(node.kind, node.arguments[0] if node.arguments else node.node_class)


def _layout_word(layout: model.Layout) -> str:
    return layout.kind if isinstance(layout, model.TensorLayout) else type(layout).__name__


def _group_sizes(section: DumpSection) -> list[tuple[int, int]]:
    counts = Counter(len(node.snodes) for node in section.walk() if node.kind == "group")
    return sorted(counts.items())


def _indirect_slots(node: DumpNode) -> int:
    body = body_of(node)
    if body is None:
        return 0
    found = [s for block in body.blocks for s in block.statements]
    return sum(isinstance(s, model.SetIndirect) for s in found)


def _twins(program: Program) -> int:
    group_of = {leaf.name: op.name for op in program.ops for leaf in op.leaves}
    found: set[str] = set()
    for d in duplicates(program):
        if group_of[d.op] == group_of[d.original]:
            found |= {d.op, d.original}
    return len(found)


def _work(program: Program) -> dict[str, int]:
    found: Counter[str] = Counter()
    for op in program.leaves:
        if not isinstance(op, Loop):
            continue
        ops = [at.stmt.op for at in op.body.walk()]
        size = sum(program.by_name[n].tensor_bytes for n in effects(op).writes)
        real = [o for o in ops if o not in ("cast", "constant", "index")]
        if real == ["store"]:
            word = "fills"
        elif real == ["load", "store"]:
            read, written = effects(op).reads[0], (*effects(op).writes, *effects(op).mutates)[0]
            same = program.by_name[read].dtype is program.by_name[written].dtype
            word = "copies" if same else "casts"
        else:
            continue
        found[word] += 1
        found[f"{word}_bytes"] += size
    return dict(found)


def _largest(program: Program) -> list[tuple[str, int]]:
    sized = [b for b in program.buffers if b.kind is BufferKind.TENSOR and b.view_of is None]
    top = sorted(sized, key=lambda b: (-b.tensor_bytes, b.name))[:5]
    return [(b.name, b.tensor_bytes) for b in top if b.tensor_bytes]


def _oddities(program: Program, imported: Imported) -> list[str]:
    """Things worth a second look, in words."""
    found = []
    useful = needed_ops(program, collectives_act=False)
    dead = [op for op in program.leaves if op.name not in useful]
    if dead:
        count = sum(isinstance(op, Collective) for op in dead)
        what = {0: "dead", 1: "dead collective chain"}.get(count, f"{count} dead collectives")
        found.append(f"{what}: {_some([op.name for op in dead])} reach no output")
    exposed = exposed_waits(program)
    if exposed:
        found.append(f"{exposed} waits follow their collective at once: nothing is overlapped")
    again = [d for d in duplicates(program) if not d.is_kept_apart]
    if again:
        size = sum(d.bytes for d in again)
        found.append(f"{len(again)} loops store what another one has stored ({size:,} B)")
    opaque = [a for a in imported.assumptions if a.code == "IND020"]
    if opaque:
        found.append(f"{len(opaque)} loop bodies cannot be executed here")
    return found


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
