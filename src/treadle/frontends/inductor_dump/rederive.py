"""Check what a dump claims: work it out again from loop bodies, layouts and mutations alone.

    result = rederive(read_dump("ir_post_fusion.txt"))
    result.checked       {"loop_nodes": 365, "user_flags": 1628, "fused_headers": 95, ...}
    result.differences   what the dump prints otherwise than it must be
    result.notes         oddities of the writer, and what no dump contains

What operations without a body read is taken as printed: their arguments are not in the dump.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from treadle.frontends.dumps import Finding, Rederivation
from treadle.frontends.inductor_dump.dialect import Dialect
from treadle.frontends.inductor_dump.model import (
    Dep,
    DumpBuffer,
    DumpLoop,
    DumpNode,
    DumpSection,
    InductorDump,
    User,
    WeakDep,
)
from treadle.frontends.inductor_dump.print import dep_text, layout_text, user_text
from treadle.frontends.inductor_dump.rederive_access import UnsayableError
from treadle.frontends.inductor_dump.rederive_distances import distance_of, input_distances
from treadle.frontends.inductor_dump.rederive_groups import (
    Header,
    Keyed,
    are_layouts_of,
    derived_header,
    header_of,
    joined_outputs,
    layout_names,
    wrong_device,
    wrong_layouts,
    wrong_space,
)
from treadle.frontends.inductor_dump.rederive_same import is_same_access
from treadle.frontends.inductor_dump.rederive_users import (
    BufferUsers,
    DerivedNode,
    body_of,
    buffers_of,
    is_normalised,
    key,
    names_many_aliases,
    removed_users,
)

WRITES, READS, USERS, SPACE = "IND010", "IND011", "IND012", "IND013"
HEADER, LAYOUTS, ORDER = "IND014", "IND015", "IND016"
NOT_MERGED, TAKEN_AS_GIVEN, DISTANCES = "IND017", "IND018", "IND019"
COUNTS = (
    "loop_nodes", "fused_headers", "user_flags", "spaces", "layouts", "lists", "distances"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """One claim of a dump that does not follow from the rest of it."""

    code: str
    where: str
    line: int
    what: str
    printed: str
    derived: str

    def __str__(self) -> str:
        return (
            f"line {self.line}: {self.where}: {self.what}: printed {self.printed}, "
            f"derived {self.derived} [{self.code}]"
        )


def rederive(dump: InductorDump) -> Rederivation[Difference]:
    """Every claim of every section that follows from other parts of the section, compared."""
    result: Rederivation[Difference] = Rederivation.counting(COUNTS)
    for section in dump.sections:
        _SectionCheck(section, dump.dialect, result).run()
    return result


class _SectionCheck:
    """The comparison of one section."""

    def __init__(
        self, section: DumpSection, dialect: Dialect, result: Rederivation[Difference]
    ) -> None:
        self.section = section
        self.dialect = dialect
        self.result = result
        self.not_merged: list[DumpNode] = []
        # Where node and buffer are one thing, dumps do not show what calls overwrite or alias.
        calls = [node for node in section.leaves() if node.kind == "extern"]
        self.hides_mutations = dialect.users_of_nodes and bool(calls)
        self.users = self._best_users()
        self.distances = input_distances(self.users)
        self.top = {leaf.name: node for node in section.nodes for leaf in node.leaves()}
        self.removed = removed_users(section)
        self.layouts = {b.name: b.layout for node in section.leaves() for b in node.outputs}

    def run(self) -> None:
        """Compare every node, then the users of every buffer."""
        start = len(self.result.differences)
        for node in self.section.walk():
            self._check_order(node)
            self._check_distances(node)
            if node.kind == "group":
                self._check_header(node)
            elif body_of(node):
                self._check_loop(node)
            else:
                self._check_call(node)
        for node in self.section.leaves():
            for buffer in buffers_of(node):
                self._check_users(buffer)
        self._check_outputs()
        self._note_headers()
        if self.hides_mutations:
            self._excuse(start)

    def _best_users(self) -> BufferUsers:
        """Versions differ in whether a call with several aliases joins them: take what fits."""
        says_fake = self.dialect.weak_deps_say_fake
        plain = BufferUsers(self.section, says_fake)
        calls = [b for node in plain.leaves for b in buffers_of(node) if names_many_aliases(b)]
        if all(_node_users(b) == plain.users_of(b.name) for b in calls):
            return plain
        joined = BufferUsers(self.section, says_fake, joins_many=True)
        wrong = [sum(_node_users(b) != w.users_of(b.name) for b in calls) for w in (plain, joined)]
        return joined if wrong[1] < wrong[0] else plain

    # --------------------------------------------------------------------------- reports

    def _differ(
        self, code: str, node: DumpNode | DumpBuffer, what: str, printed: str, derived: str
    ) -> None:
        difference = Difference(code, node.name, node.line, what, printed, derived)
        self.result.differences.append(difference)

    def _note(self, code: str, node: DumpNode, message: str) -> None:
        self.result.notes.append(Finding(code, f"{node.name}: {message}", node.line, is_note=True))

    def _note_headers(self) -> None:
        if self.not_merged:
            first, count = self.not_merged[0], len(self.not_merged)
            message = "the header is older than the loops of the members, which were merged or "
            message += f"reordered after fusion ({count} such group{'s' * (count > 1)})"
            self._note(NOT_MERGED, first, message)

    def _count(self, what: str, right: int, of: int = 1) -> None:
        self.result.checked[what] += right
        self.result.total[what] += of

    def _excuse(self, start: int) -> None:
        """Turn what may come from mutations that the dump does not show into one note."""
        found = self.result.differences[start:]
        kept = [difference for difference in found if difference.code not in (READS, USERS)]
        self.result.differences[start:] = kept
        if count := len(found) - len(kept):
            message = f"{count} lists of reads or users taken as given: this old form does not show"
            self._note(TAKEN_AS_GIVEN, self.section.nodes[0], f"{message} what calls overwrite")

    def _texts(self, deps: Iterable[Dep]) -> str:
        return ", ".join([dep_text(dep, self.dialect) for dep in deps]) or "nothing"

    def _compare(
        self, code: str, node: DumpNode, what: str, printed: Keyed, derived: Keyed
    ) -> bool:
        """Report what only one side has; whether both are the same."""
        extra = [dep for k, dep in printed.items() if k not in derived]
        missing = [dep for k, dep in derived.items() if k not in printed]
        if extra and missing:
            extra = [dep for dep in extra if not _is_among(dep, derived)]
            missing = [dep for dep in missing if not _is_among(dep, printed)]
        if extra or missing:
            self._differ(code, node, what, self._texts(extra), self._texts(missing))
        return not extra and not missing

    # ------------------------------------------------------------------------- one node

    def _check_order(self, node: DumpNode) -> None:
        for what, deps in (("writes", node.writes), ("unmet", node.unmet), ("met", node.met)):
            texts = [dep_text(dep, self.dialect) for dep in deps]
            wrong = [pair for pair in pairwise(texts) if pair[0] >= pair[1]]
            self._count("lists", not wrong)
            if wrong:
                self._differ(ORDER, node, f"order of {what}", ", ".join(wrong[0]), "sorted")

    def _check_distances(self, node: DumpNode) -> None:
        printed = node.min_input_distance, node.max_input_distance
        derived = distance_of(node, self.distances)
        if None in printed or derived is None:
            return
        self._count("distances", printed == derived)
        if printed != derived:
            self._differ(DISTANCES, node, "input distances", str(printed), str(derived))

    def _check_loop(self, node: DumpNode) -> None:
        derived = self.users.derived[node.name]
        if not derived.is_derived:
            self._note(TAKEN_AS_GIVEN, node, f"not re-derived: {derived.why_not}")
            self._count("loop_nodes", 0)
            return
        if derived.given:
            shown = self._texts(derived.given)
            self._note(TAKEN_AS_GIVEN, node, f"{shown}: a size found at run time, taken as given")
        writes = {key(dep): dep for dep in node.writes}
        same = self._compare(WRITES, node, "writes", writes, derived.writes)
        same &= self._check_reads(node, derived)
        self._count("loop_nodes", same)
        self._check_space(node)
        self._check_layouts(node, derived)

    def _check_reads(self, node: DumpNode, derived: DerivedNode) -> bool:
        expected: Keyed = {**derived.reads, **derived.weak}
        printed = {key(dep): dep for dep in (*node.unmet, *node.met)}
        for k, dep in list(expected.items()):
            if k not in printed and isinstance(dep, WeakDep) and self._is_redundant(node, dep):
                del expected[k]
        for k, dep in printed.items():
            # An order that the graph asks for names the operation instead of a buffer.
            if isinstance(dep, WeakDep) and dep.mutating_buf == node.name:
                expected.setdefault(k, dep)
        same = self._compare(READS, node, "reads", printed, expected)
        written = self.users.writer
        waits = {key(dep): dep for dep in node.unmet if dep.name not in written}
        for dep in waits.values():
            self._differ(READS, node, "unmet", self._texts([dep]), "met: no node writes it")
        ready = [dep for dep in node.met if dep.name in written]
        for dep in ready:
            self._differ(READS, node, "met", self._texts([dep]), "unmet: a node writes it")
        return same and not waits and not ready

    def _is_redundant(self, node: DumpNode, weak: WeakDep) -> bool:
        """Whether the order also follows from a real dependence, or stays inside one group.

        Fusion drops such edges as it goes, so dumps made after it may or may not show them.
        """
        home = self._home(weak.name)
        real = [dep.name for dep in node.unmet if not isinstance(dep, WeakDep)]
        if self.top.get(node.name) is not node:
            real += [d.name for d in self.top[node.name].unmet if not isinstance(d, WeakDep)]
        return home == self.top[node.name].name or home in [self._home(name) for name in real]

    def _home(self, buffer: str) -> str:
        writer = self.users.writer.get(buffer)
        return self.top[writer.name].name if writer else ""

    def _check_call(self, node: DumpNode) -> None:
        """Of a node without a body: what it makes, and what its mutations ask for."""
        writes = {dep.name for dep in node.writes}
        outputs = {buffer.name for buffer in buffers_of(node)}
        if writes != outputs:
            texts = [", ".join(sorted(names)) or "nothing" for names in (writes, outputs)]
            self._differ(WRITES, node, "writes", *texts)
        self._check_space(node)
        derived = self.users.derived[node.name]
        printed = {key(dep): dep for dep in (*node.unmet, *node.met)}
        names = {dep.name for dep in printed.values() if not isinstance(dep, WeakDep)}
        for star in derived.targets:
            if star.name not in names:
                self._differ(READS, node, "reads", "nothing", self._texts([star]))
        for k, weak in derived.weak.items():
            if k not in printed and not self._is_redundant(node, weak):
                self._differ(READS, node, "reads", "nothing", self._texts([weak]))

    def _check_space(self, node: DumpNode) -> None:
        if not isinstance(node.detail, DumpLoop):
            return
        try:
            wrong = list(wrong_space(node.detail, body_of(node)))
            wrong += wrong_device(node.detail, buffers_of(node))
            self._count("spaces", not wrong)
            for what, printed, derived in wrong:
                self._differ(SPACE, node, what, printed, derived)
        except UnsayableError as reason:
            self._note(TAKEN_AS_GIVEN, node, f"iteration space not re-derived: {reason}")

    def _check_layouts(self, node: DumpNode, derived: DerivedNode) -> None:
        if not isinstance(node.detail, DumpLoop):
            return
        lines = node.detail.layouts
        printed = [name for name, _ in lines]
        names = layout_names(derived)
        if not printed:
            return  # Dumps of torch 2.4 and older list none.
        same = are_layouts_of(printed, names, derived)
        if not same:
            self._differ(LAYOUTS, node, "layouts", ", ".join(printed), ", ".join(names))
        wrong = list(wrong_layouts(lines, self.layouts))
        self._count("layouts", len(lines) - len(wrong) if same else 0, len(lines))
        for name, layout, expected in wrong:
            texts = layout_text(layout), layout_text(expected)
            self._differ(LAYOUTS, node, f"{name}_layout", *texts)

    # --------------------------------------------------------------------------- groups

    def _check_header(self, node: DumpNode) -> None:
        members = node.snodes
        differences = len(self.result.differences)
        names = "_".join([member.name for member in members])
        if node.name != names:
            self._differ(HEADER, node, "name", node.name, names)
        classes = tuple([member.node_class for member in members])
        if node.arguments != classes:
            self._differ(HEADER, node, "classes", ",".join(node.arguments), ",".join(classes))
        if node.outputs != joined_outputs(members):
            self._differ(HEADER, node, "outputs", *_first_difference(node, members))
        self._check_header_lists(node, members)
        self._count("fused_headers", len(self.result.differences) == differences)

    def _check_header_lists(self, node: DumpNode, members: tuple[DumpNode, ...]) -> None:
        printed, derived = header_of(node), derived_header(members)
        self._drop_redundant(node, printed, derived)
        is_older = not all(map(is_normalised, (node, *members)))
        if is_older and not printed.same(derived):
            merged = derived_header(members, merged=True)
            self._drop_redundant(node, printed, merged)
            if printed.merged().alike(merged):
                self.not_merged.append(node)
                return
        self._compare(HEADER, node, "writes", printed.writes, derived.writes)
        self._compare(HEADER, node, "unmet", printed.unmet, derived.unmet)
        self._compare(HEADER, node, "met", printed.met, derived.met)

    def _drop_redundant(self, node: DumpNode, printed: Header, derived: Header) -> None:
        for part in (derived.unmet, derived.met):
            for k, dep in list(part.items()):
                shown = k in printed.unmet or k in printed.met
                if isinstance(dep, WeakDep) and not shown and self._is_redundant_in(node, dep):
                    del part[k]

    def _is_redundant_in(self, group: DumpNode, weak: WeakDep) -> bool:
        real = [dep.name for dep in group.unmet if not isinstance(dep, WeakDep)]
        inside = {leaf.name for leaf in group.leaves()}
        writer = self.users.writer.get(weak.name)
        is_inside = writer is not None and writer.name in inside
        return is_inside or self._home(weak.name) in [self._home(name) for name in real]

    # ---------------------------------------------------------------------------- users

    def _check_users(self, buffer: DumpBuffer) -> None:
        gone = self.removed.get(buffer.name, ())
        printed = [user for user in _node_users(buffer) if user.node not in gone]
        derived = self._as_printed(self.users.users_of(buffer.name), printed)
        if self.dialect.users_of_nodes:
            derived = [_like(user, printed) for user in derived]
        right = [user for user in printed if user in derived]
        self._count("user_flags", len(right), len(printed))
        if printed != derived:
            extra = [user_text(user) for user in printed if user not in derived]
            missing = [user_text(user) for user in derived if user not in printed]
            if not extra and not missing:
                extra, missing = [[user.node for user in users] for users in (printed, derived)]
            texts = ", ".join(extra) or "nothing", ", ".join(missing) or "nothing"
            self._differ(USERS, buffer, "users", *texts)
        for user in buffer.users:
            if user.is_output and (user.can_inplace or user.is_weak):
                self._differ(USERS, buffer, "users", user_text(user), "an output with no flag")

    def _as_printed(self, derived: list[User], printed: list[User]) -> list[User]:
        """Members replaced by their group where the dump names the group."""
        groups = {user.node: user for user in printed if user.names_group}
        if not groups:
            return derived
        joined: dict[str, User] = {}
        for user in derived:
            group = groups.get(self.top[user.node].name)
            name = group.node if group else user.node
            new = replace(group or user, can_inplace=user.can_inplace, is_weak=user.is_weak)
            old = joined.get(name, new)
            joined[name] = replace(
                new,
                can_inplace=old.can_inplace and new.can_inplace,
                is_weak=old.is_weak and new.is_weak,
            )
        return list(joined.values())

    def _check_outputs(self) -> None:
        """Which buffers are returned is given; that aliases agree and inputs come back, is not."""
        buffers = {b.name: b for node in self.section.leaves() for b in buffers_of(node)}
        for name, last in self.users.mutated_inputs():
            buffer = buffers.get(last)
            if buffer and not _is_output(buffer):
                self._differ(USERS, buffer, "users", "no OUTPUT", f"OUTPUT: it overwrites {name}")
        for names in self.users.sharing():
            group = [buffers[name] for name in names if name in buffers]
            returned = [buffer for buffer in group if _is_output(buffer)]
            for buffer in group:
                if returned and not _is_output(buffer):
                    derived = f"OUTPUT, as its alias {returned[0].name}"
                    self._differ(USERS, buffer, "users", "no OUTPUT", derived)


def _is_among(dep: Dep, others: Keyed) -> bool:
    return any(is_same_access(dep, other) for other in others.values() if other.name == dep.name)


def _is_output(buffer: DumpBuffer) -> bool:
    return any(user.is_output for user in buffer.users)


def _node_users(buffer: DumpBuffer) -> list[User]:
    return [user for user in buffer.users if not user.is_output]


def _like(user: User, printed: list[User]) -> User:
    """The user with the flags that old dumps print: those without is_weak have None."""
    found = next((other for other in printed if other.node == user.node), user)
    return replace(user, is_weak=None) if found.is_weak is None else user


def _first_difference(node: DumpNode, members: tuple[DumpNode, ...]) -> tuple[str, str]:
    printed, derived = node.outputs, joined_outputs(members)
    names = [", ".join([buffer.name for buffer in part]) for part in (printed, derived)]
    if names[0] != names[1]:
        return names[0], names[1]
    wrong = [a.name for a, b in zip(printed, derived, strict=True) if a != b]
    return ", ".join(wrong), "as in the members"
