"""A program, scheduled or not, as a dump of TorchInductor's.

    dump = export_dump(program, "2.13")
    print_dump(dump)                    # the text
    exported = export_program(program)
    exported.names                      # {"h": "buf3", "relu": "op5"}: what has another name
    exported.notes                      # what the format cannot say, one finding for each

Nodes get bodies, layouts and mutations; everything else that a dump prints is worked out by the
code that checks dumps, so that a dump written here passes every check.

What the format cannot say: arguments of calls that are no buffers, their order, views as operands,
the group of a collective, how a scan combines, bounds of run-time sizes and of indirect values,
donated inputs, origins, inputs that nothing touches or that are returned untouched, the order of
outputs. Inputs that are changed are always returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from treadle.core.errors import UsageError
from treadle.frontends.dumps import Finding
from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.dialect import DIALECTS, Dialect
from treadle.frontends.inductor_dump.export_names import (
    ExportedNames,
    Output,
    name_everything,
    number_of,
)
from treadle.frontends.inductor_dump.export_nodes import NodeWriter
from treadle.frontends.inductor_dump.model import (
    DumpNode,
    DumpSection,
    InductorDump,
    User,
    WeakDep,
)
from treadle.frontends.inductor_dump.print import dep_text
from treadle.frontends.inductor_dump.rederive_distances import (
    Distances,
    distance_of,
    input_distances,
)
from treadle.frontends.inductor_dump.rederive_groups import (
    derived_header,
    joined_outputs,
    layout_names,
)
from treadle.frontends.inductor_dump.rederive_users import BufferUsers, body_of, key
from treadle.ir.effects import effects
from treadle.ir.program import Call, Collective, Loop, Nest, Operation, Program, walk_operations

UNSAID = "IND024"
FROM_DATA = "inductor.DynamicScalar"
OUTPUT = User("OUTPUT", None, can_inplace=False, is_weak=False)


@dataclass(frozen=True)
class Exported:
    """A dump of a program, how names changed, and what could not be said."""

    dump: InductorDump
    names: Mapping[str, str]
    notes: tuple[Finding, ...]


def export_dump(
    program: Program,
    dialect: str | Dialect = "2.13",
    *,
    section_title: str = "",
) -> InductorDump:
    """The program as a dump in a dialect; see `export_program`."""
    return export_program(program, dialect, section_title=section_title).dump


def export_program(
    program: Program,
    dialect: str | Dialect = "2.13",
    *,
    section_title: str = "",
) -> Exported:
    """The program as a dump that passes every check, with the names and notes that go with it.

    With a title, BEFORE FUSION or AFTER FUSION, the dump has the form of a log.
    """
    chosen = DIALECTS[dialect] if isinstance(dialect, str) else dialect
    chosen = replace(chosen, users_of_nodes=False, is_log=bool(section_title))
    kernel = next((op for op in program.leaves if isinstance(op, Nest)), None)
    if kernel is not None:
        message = f"a dump has no form for kernels, and '{kernel.name}' is one"
        raise UsageError(message, code="IND030")
    names = name_everything(program)
    writer = NodeWriter(names, chosen)
    bare = [writer.node(op) for op in names.ops]
    nodes = _Filling(names, writer, bare, chosen).nodes()
    notes = [Finding(UNSAID, f"{op}: {text}", 0, is_note=True) for op, text in writer.notes]
    notes += [Finding(UNSAID, text, 0, is_note=True) for text in _unsaid(names)]
    section = DumpSection(tuple(nodes), title=section_title)
    dump = InductorDump(chosen, (section,), findings=tuple(notes))
    return Exported(dump, names.mapping(), tuple(notes))


def _unsaid(names: ExportedNames) -> Iterator[str]:
    """What no dump says about a program as a whole."""
    program = names.program
    if program.donated:
        yield f"not shown: that {', '.join(program.donated)} may be reused"
    touched = {program.storage_of(n) for op in program.leaves for n in effects(op).touched}
    for name in program.inputs:
        if name not in touched:
            yield f"not shown: the input {name}, which nothing touches"
    written = {
        program.storage_of(n)
        for op in program.leaves
        for n in (*effects(op).writes, *effects(op).mutates)
    }
    for name in program.outputs:
        if program.storage_of(name) not in written:
            yield f"not shown: that {name} is returned as it came"
        elif names.home(name) != name:
            yield f"not shown: that {name} is returned as a view"
    for size in program.sizes:
        if (size.lo or 0) > 0 or size.hi is not None or size.divisor > 1:
            yield f"not shown: the bounds of the size {size.name}"


class _Filling:
    """Fills in what follows: dependences, users, distances, headers of groups."""

    def __init__(
        self, names: ExportedNames, writer: NodeWriter, bare: list[DumpNode], dialect: Dialect
    ) -> None:
        self.names, self.layouts, self.dialect = names, writer.layouts, dialect
        self.leaf_of = {names.op[op.name]: op for op in names.program.leaves}
        self.after = self._orders()
        self.chain = self._collective_chain()
        self.bare = [self._with_orders(node) for node in bare]
        section = DumpSection(tuple(self.bare))
        self.users = BufferUsers(section, dialect.weak_deps_say_fake, calls_use_first_names=True)
        self.distances: Distances = input_distances(self.users) if dialect.shows_distances else {}
        self.returned = self._returned()

    def nodes(self) -> list[DumpNode]:
        """The nodes of the dump."""
        return [self._filled(node) for node in self.bare]

    # -- orders ----------------------------------------------------------------------------
    def _orders(self) -> dict[str, list[str]]:
        """For each leaf, the leaves that it is told to follow; a group speaks for its members."""
        known = self.names.program.op_by_name
        found: dict[str, list[str]] = {}
        for op in walk_operations(self.names.program.ops):
            before = [x.name for name in op.after for x in known[name].leaves]
            for leaf in op.leaves:
                found.setdefault(leaf.name, []).extend(before)
        return found

    def _collective_chain(self) -> dict[str, list[model.Dep]]:
        """Collectives follow each other; from 2.13 on dumps say so."""
        found: dict[str, list[model.Dep]] = {}
        if not self.dialect.weak_deps_say_fake:
            return found
        leaves = sorted(self.leaf_of.items(), key=lambda item: number_of(item[0]))
        chain = [(name, op.name) for name, op in leaves if isinstance(op, Collective)]
        for (_, before), (name, op) in pairwise(chain):
            mine = self.names.outputs[op][0].name
            rows = [self._current(o, number_of(name)) for o in self.names.outputs[before]]
            found[name] = [WeakDep(row, mine, True) for row in rows]
        return found

    def _current(self, o: Output, number: int) -> str:
        """The name that an output has when operation `number` is made."""
        if o.buffer is None:
            return o.name
        return [name for at, name in self.names.versions[o.buffer] if at < number][-1]

    def _with_orders(self, node: DumpNode) -> DumpNode:
        if node.snodes:
            members = tuple([self._with_orders(m) for m in node.snodes])
            return replace(node, detail=model.Members(members))
        op = self.leaf_of[node.name]
        deps = [d for name in self.after.get(op.name, ()) for d in self._order(node, op, name)]
        deps += self.chain.get(node.name, ())
        return replace(node, unmet=tuple(dict.fromkeys(deps)))

    def _order(self, node: DumpNode, op: Operation, before: str) -> Iterator[model.Dep]:
        rows = self.names.outputs[before]
        named = [o for o in rows if o.buffer is not None] or list(rows)
        source = self.names.program.op_by_name[before]
        if isinstance(source, Call) and source.target == FROM_DATA and isinstance(op, Loop):
            yield from (model.StarDep(o.name) for o in named)
            return
        fake = True if self.dialect.weak_deps_say_fake else None
        mine = node.name if body_of(node) else node.outputs[0].name
        for o in named:
            yield WeakDep(o.name, mine, fake)

    # -- leaves and groups -----------------------------------------------------------------
    def _filled(self, node: DumpNode) -> DumpNode:
        far = distance_of(node, self.distances)
        node = replace(
            node,
            min_input_distance=far[0] if far else None,
            max_input_distance=far[1] if far else None,
        )
        if node.snodes:
            members = tuple([self._filled(m) for m in node.snodes])
            header = derived_header(members)
            return replace(
                node,
                writes=self._sorted(header.writes.values()),
                unmet=self._sorted(header.unmet.values()),
                met=self._sorted(header.met.values()),
                outputs=joined_outputs(members),
                detail=model.Members(members),
            )
        derived = self.users.derived[node.name]
        reads = {**derived.reads, **derived.weak}
        writer = self.users.writer
        makers = {writer[dep.name].name for dep in reads.values() if dep.name in writer}
        orders = [dep for dep in node.unmet if writer[dep.name].name not in makers]
        reads |= {key(dep): dep for dep in orders}
        detail = node.detail
        if isinstance(detail, model.DumpLoop):
            listed = layout_names(derived)
            detail = replace(detail, layouts=tuple([(n, self.layouts[n]) for n in listed]))
        return replace(
            node,
            writes=self._sorted(derived.writes.values()),
            unmet=self._sorted(dep for dep in reads.values() if dep.name in writer),
            met=self._sorted(dep for dep in reads.values() if dep.name not in writer),
            outputs=tuple([self._with_users(buffer) for buffer in node.outputs]),
            detail=detail,
        )

    def _sorted(self, deps: Iterable[model.Dep]) -> tuple[model.Dep, ...]:
        return tuple(sorted(deps, key=lambda dep: dep_text(dep, self.dialect)))

    # -- users -----------------------------------------------------------------------------
    def _with_users(self, buffer: model.DumpBuffer) -> model.DumpBuffer:
        users = self.users.users_of(buffer.name)
        end = [OUTPUT] if buffer.name in self.returned else []
        return replace(buffer, users=(*users, *end))

    def _returned(self) -> set[str]:
        """The last versions of what is returned or of inputs that are changed, and aliases."""
        program, known = self.names.program, self.users
        homes = [self.names.home(name) for name in program.outputs]
        found = {known.current(self.names.buffer[h]) for h in homes if h in self.names.buffer}
        found |= {last for _, last in known.mutated_inputs()}
        for shared in known.sharing():
            if found & set(shared):
                found |= set(shared)
        return found
