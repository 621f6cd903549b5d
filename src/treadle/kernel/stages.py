"""In which pass over the reduction loops each statement of a body runs.

At one point of the iteration loops a body alternates between single statements and passes over
the reduction loops. Times tell the order: even ones are places for single statements, odd ones are
passes.

    %0 = load x[i, j]        varies along j: computed anew in every pass that needs it
    %1 = reduce max %0       pass 1
    %2 = sub %0, %1          varies
    %3 = reduce sum %2       pass 3, because %1 is known after pass 1
    store y[i] = %3          time 4

What varies is not kept but recomputed, except where it cannot be: a value loaded from a storage
that a pass in between overwrites, and what is sorted, are kept in rows. A store never runs before
statements that stand above it, so memory shared in place is read before it is written.

Nothing here knows the target language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from treadle.index import Expr, Kind, Symbol
from treadle.ir.body import COMBINING, Body, Stmt, number_of, operands_of
from treadle.ir.ops import OPS

TWO_PASSES = frozenset({"welford", "welford_combine", "online_softmax"})
"""Reductions whose second half needs the first half of the whole row."""
POSITIONS = frozenset({"argmax", "argmin"})
"""Reductions that in any order go over a row for the extreme, then for the first place it is at."""
REPEATABLE = frozenset(
    {"load", "constant", "index", "indirect", "cast", "neg", "abs", "mul", "add", "sub", "where"}
    | {"maximum", "minimum", "relu", "bitcast"}
)
"""Operations that give the same bits in every pass, unless a product and a sum become one step."""
COSTLY = 8.0
"""Work (see `ops`) from which on a value is read back from a row rather than computed again."""
LONGEST_ROW = 1 << 15
"""Elements of a row that is kept: it should stay in a core's cache."""


@dataclass
class Step:
    """A statement of the body's top level and what is decided about it."""

    position: int
    number: int
    """The number of its value (or of the next one, if it has none)."""
    stmt: Stmt
    uses: tuple[int, ...] = ()
    """Positions of the statements whose values it uses."""
    varies: frozenset[Symbol] = frozenset()
    """Reduction loops along which it differs; it happens once along the others."""
    over: frozenset[Symbol] = frozenset()
    """For a reduction over a part of the inner loops: those loops."""
    loads: frozenset[str] = frozenset()
    stores: str | None = None
    acts: bool = False
    """Whether it must run even if nobody uses its value: stores, assertions."""
    time: int = 0
    """When it runs; for what varies and is recomputed, the earliest pass that may do so."""
    kept: bool = False
    """Whether its value is kept in a row from its first pass on."""
    twice: frozenset[str] = TWO_PASSES
    """The reductions that go over a row twice, as the renderer writes them."""

    @property
    def op(self) -> str:
        """The operation."""
        return self.stmt.op

    @property
    def is_two_pass(self) -> bool:
        """Whether it is a reduction that goes over the row twice; `time` is the second pass."""
        return self.op == "reduce" and self.stmt.attr("kind") in self.twice


@dataclass
class InnerPass:
    """One walk over reduction loops: what happens there, and what must be computed for it."""

    time: int
    loops: frozenset[Symbol]
    actions: list[Step] = field(default_factory=list)
    needed: list[Step] = field(default_factory=list)


@dataclass
class Nests:
    """The whole plan of a body: the steps, the single statements by time, the passes."""

    steps: list[Step]
    singles: dict[int, list[Step]]
    passes: dict[int, InnerPass]

    @property
    def times(self) -> list[int]:
        """All times at which something happens, in order."""
        return sorted({*self.singles, *self.passes})


def over_of(stmt: Stmt) -> frozenset[Symbol]:
    """The loops that a reduction of a part goes over."""
    over = stmt.attr("over")
    assert isinstance(over, Expr)
    return over.free


def plan_nests(
    body: Body,
    storage_of: Callable[[str], str],
    keep: frozenset[int] | None = None,
    *,
    in_any_order: bool = False,
    twice: frozenset[str] | None = None,
) -> Nests:
    """Decide for each statement when it runs and what is kept.

    `keep` names the values to be kept beside those that must be; without it, costly ones are.
    `in_any_order` says that no storage is touched in several ways: a store need then not wait for
    what stands above it, unless a later pass reads elements that it may have overwritten.
    `twice` names the reductions that the renderer makes in two passes; if it does not say, in any
    order positions are among them.
    """
    if twice is None:
        twice = TWO_PASSES | POSITIONS if in_any_order else TWO_PASSES
    found = _planned(_steps(body, storage_of, twice), body, keep, in_any_order)
    if in_any_order and _overwrites_early(found):
        return _planned(_steps(body, storage_of, twice), body, keep, False)
    return found


def _planned(
    steps: list[Step],
    body: Body,
    keep: frozenset[int] | None,
    in_any_order: bool,
) -> Nests:
    _assign_times(steps, frozenset(body.reduce.vars), in_any_order)
    passes = _passes(steps, frozenset(body.reduce.vars))
    _keep_overwritten(steps, passes, frozenset(body.reduce.vars))
    _keep_compared(steps, passes, frozenset(body.reduce.vars))
    if keep is not None:
        _keep_chosen(steps, passes, keep)
    elif body.reduce.numel_hint <= LONGEST_ROW:
        _keep_costly(steps, passes, frozenset(body.reduce.vars))
    for one in passes.values():
        one.needed = _needed(one, steps)
    wanted = _wanted_singles(steps, passes)
    singles: dict[int, list[Step]] = {}
    for s in steps:
        if s.position in wanted:
            singles.setdefault(s.time, []).append(s)
    return Nests(steps, singles, dict(sorted(passes.items())))


def _overwrites_early(plan: Nests) -> bool:
    """Whether a pass reads elements that a pass before it may have overwritten.

    A plan of memory gives an output the place of an input only if both are touched at the same
    indices.
    """
    for time, one in plan.passes.items():
        written = {s.stmt.attr("index") for s in one.actions if s.op == "store"}
        for later, other in plan.passes.items():
            if later <= time or not written:
                continue
            for s in other.needed:
                if not (s.kept and later > s.time) and written & _read_at(s.stmt):
                    return True
    return False


def _read_at(stmt: Stmt) -> set[object]:
    found: set[object] = {stmt.attr("index")} if stmt.op == "load" else set()
    for inner in stmt.region:
        found |= _read_at(inner)
    return found


def statement_loops(body: Body) -> list[frozenset[Symbol]]:
    """For each statement of the top level, the inner loops along which it differs."""
    return [step.varies for step in steps_of(body)]


def steps_of(body: Body) -> list[Step]:
    """The statements of the top level and what each uses, not yet planned."""
    return _steps(body, lambda name: name)


def loops_of_steps(steps: Sequence[Step]) -> list[frozenset[Symbol]]:
    """For each statement, all loops along which its value may differ."""
    found: list[frozenset[Symbol]] = []
    for step in steps:
        along = frozenset(_free_loops(step.stmt)).union(*[found[u] for u in step.uses])
        found.append(along - step.over if step.op == "reduce_part" else along)
    return found


def _free_loops(stmt: Stmt) -> set[Symbol]:
    found = {s for e in stmt.attrs if isinstance(e, Expr) for s in e.free if s.kind is Kind.LOOP}
    for inner in stmt.region:
        found |= _free_loops(inner)
    return found


# ------------------------------------------------------------------------------------ steps


def _steps(
    body: Body, storage_of: Callable[[str], str], twice: frozenset[str] = TWO_PASSES
) -> list[Step]:
    steps: list[Step] = []
    home: dict[int, int] = {}
    reduce_vars = frozenset(body.reduce.vars)
    varies: dict[int, frozenset[Symbol]] = {}
    counter = 0
    for position, stmt in enumerate(body.stmts):
        step = Step(position, counter, stmt, twice=twice)
        counter = _look(stmt, step, counter, home, varies, reduce_vars, storage_of)
        used = {home[n] for n in operands_of(stmt)} - {position}
        step.uses = tuple(sorted(used))
        step.varies = varies[position]
        steps.append(step)
    if not any(step.stores is not None for step in steps):
        for step in steps:  # indices are all that such a nest is there for
            step.acts = step.acts or (step.op == "indirect" and bool(step.stmt.attr("check")))
    return steps


def _look(
    stmt: Stmt,
    step: Step,
    counter: int,
    home: dict[int, int],
    varies: dict[int, frozenset[Symbol]],
    reduce_vars: frozenset[Symbol],
    storage_of: Callable[[str], str],
) -> int:
    """Note what a statement and its region touch; gives the next free value number."""
    along = varies.get(step.position, frozenset())
    for n in stmt.args:
        along |= varies[home[n]]
    for e in stmt.attrs if stmt.op != "bucketize" else ():
        if isinstance(e, Expr):
            along |= e.free & reduce_vars
            for s in e.free:
                if s.kind is Kind.INDIRECT:
                    along |= varies[home[number_of(s)]]
    if stmt.op == "reduce_part":
        step.over = over_of(stmt) & reduce_vars
        along -= step.over
    elif stmt.op in COMBINING:
        along = frozenset() if stmt.op == "reduce" else reduce_vars
    varies[step.position] = along
    if OPS[stmt.op].produces:
        home[counter] = step.position
        counter += 1
    if stmt.op in ("load", "bucketize"):
        step.loads |= {storage_of(stmt.buffer)}
    if stmt.op == "store":
        step.stores = storage_of(stmt.buffer)
    step.acts = step.acts or stmt.op in ("store", "assert")
    for inner in stmt.region:
        counter = _look(inner, step, counter, home, varies, reduce_vars, storage_of)
    return counter


# ------------------------------------------------------------------------------------ times


def _assign_times(steps: list[Step], reduce_vars: frozenset[Symbol], in_any_order: bool) -> None:
    written: dict[str, int] = {}
    read: dict[str, int] = {}
    taken: set[int] = set()
    latest = 0
    for s in steps:
        ready = max([_after(steps[u]) for u in s.uses], default=0)
        for storage in s.loads:
            ready = max(ready, written.get(storage, 0))
        if s.stores is not None:
            waits = 0 if in_any_order else latest
            ready = max(ready, waits, read.get(s.stores, 0), written.get(s.stores, 0))
        in_pass = bool(s.varies) or s.op in COMBINING
        s.time = ready | 1 if in_pass else ready + (ready & 1)
        own_walk = s.over | s.varies if s.over else s.varies
        if (s.acts or s.over) and in_pass and own_walk != reduce_vars:
            # Along loops it does not vary over it happens once: a walk of its own.
            s.time = (max([latest, s.time, *taken]) + 1) | 1
            taken.add(s.time)
        else:
            while in_pass and not taken.isdisjoint((s.time, s.time + 2 * s.is_two_pass)):
                s.time += 2
        s.time += 2 * s.is_two_pass
        for storage in s.loads:
            read[storage] = max(read.get(storage, 0), s.time)
        if s.stores is not None:
            written[s.stores] = max(written.get(s.stores, 0), s.time)
        if s.acts or s.op in COMBINING:
            latest = max(latest, s.time)


def _after(s: Step) -> int:
    """The earliest time at which the value of `s` can be used."""
    if s.op == "reduce" or (s.over and not s.varies):
        return s.time + 1
    return s.time + 2 if s.op == "sort" or s.over else s.time


def first_pass(s: Step) -> int:
    """The pass in which a reduction of two passes looks at its row first."""
    return s.time - 2 if s.is_two_pass else s.time


# ------------------------------------------------------------------------------------ passes


def _passes(steps: list[Step], reduce_vars: frozenset[Symbol]) -> dict[int, InnerPass]:
    passes: dict[int, InnerPass] = {}

    def at(time: int, loops: frozenset[Symbol]) -> InnerPass:
        return passes.setdefault(time, InnerPass(time, loops))

    for s in steps:
        if s.over:
            at(s.time, s.over | s.varies).actions.append(s)
            s.kept = bool(s.varies)
        elif s.op in ("reduce", "sort"):
            for time in {first_pass(s), s.time}:
                at(time, reduce_vars).actions.append(s)
        elif s.acts and s.varies:
            at(s.time, s.varies).actions.append(s)
    return passes


def _needed(one: InnerPass, steps: list[Step]) -> list[Step]:
    """Statements to run in a pass: its actions and all that varies on the way to them."""
    found: dict[int, Step] = {s.position: s for s in one.actions}
    pending = [u for s in one.actions for u in s.uses]
    while pending:
        s = steps[pending.pop()]
        if s.position in found or not s.varies:
            continue
        found[s.position] = s
        if s.op != "sort" and not (s.kept and one.time > s.time):
            pending.extend(s.uses)
    return [found[p] for p in sorted(found)]


def _keep_overwritten(
    steps: list[Step], passes: dict[int, InnerPass], reduce_vars: frozenset[Symbol]
) -> None:
    """Mark values that a later pass could not load again; make sure their first pass exists."""
    changed = True
    while changed:
        changed = False
        for one in list(passes.values()):
            for s in _needed(one, steps):
                if s.kept or not s.loads or not s.varies or s.op in COMBINING:
                    continue
                if one.time > _overwritten_at(s, steps):
                    changed = True
                    _keep(s, passes, reduce_vars)


def _keep(s: Step, passes: dict[int, InnerPass], reduce_vars: frozenset[Symbol]) -> None:
    s.kept = True
    home = passes.setdefault(s.time, InnerPass(s.time, reduce_vars))
    if s not in home.actions:
        home.actions.append(s)


def _keep_compared(
    steps: list[Step], passes: dict[int, InnerPass], reduce_vars: frozenset[Symbol]
) -> None:
    """Mark values whose extreme is found by comparing, if a second pass may round them anew."""
    for s in steps:
        if not s.is_two_pass or s.stmt.attr("kind") not in POSITIONS:
            continue
        for u in s.uses:
            if steps[u].varies and not steps[u].kept and not _is_repeatable(u, steps):
                _keep(steps[u], passes, reduce_vars)


def _is_repeatable(position: int, steps: list[Step]) -> bool:
    """Whether a value is made of steps that give the same bits wherever they are written."""
    seen, todo, found = set(), [position], set()
    while todo:
        step = steps[todo.pop()]
        if step.position in seen or (step.kept and step.position != position):
            continue
        seen.add(step.position)
        if step.varies:
            found.add(step.op)
            todo += step.uses
    return found <= REPEATABLE and not ("mul" in found and found & {"add", "sub"})


def _keep_costly(
    steps: list[Step], passes: dict[int, InnerPass], reduce_vars: frozenset[Symbol]
) -> None:
    """Mark values that a later pass would compute again at more cost than reading them back.

    Of a chain of values only the last is kept: the one that what is new in the later pass uses.
    """
    for time in sorted(passes)[1:]:
        one = passes[time]
        acting = {s.position for s in one.actions}
        needed = {s.position: s for s in _needed(one, steps)}
        before = {s.position for t, p in passes.items() if t < time for s in _needed(p, steps)}
        for s in needed.values():
            if s.position in before and s.position not in acting and s.varies == reduce_vars:
                continue  # it was there before: only what is new now asks for old values
            for u in s.uses:
                made = steps[u]
                if u not in needed or not _could_be_kept(made, time, reduce_vars):
                    continue
                first = min((t for t, p in passes.items() if _is_needed(made, p, steps)))
                if first < time and _work(made, steps, set()) >= COSTLY:
                    made.kept, made.time = True, first
                    home = passes[first]
                    if made not in home.actions:
                        home.actions.append(made)


def _keep_chosen(steps: list[Step], passes: dict[int, InnerPass], keep: frozenset[int]) -> None:
    """Keep these values from the first pass that needs them on, if a later one does too."""
    for made in steps:
        if made.number not in keep or made.kept or not OPS[made.op].produces:
            continue
        times = [t for t, p in passes.items() if _is_needed(made, p, steps)]
        if len(times) > 1:
            made.kept, made.time = True, min(times)
            home = passes[made.time]
            if made not in home.actions:
                home.actions.append(made)


def _could_be_kept(s: Step, time: int, reduce_vars: frozenset[Symbol]) -> bool:
    is_value = OPS[s.op].produces and s.op not in COMBINING and s.op != "masked"
    return is_value and not s.kept and s.varies == reduce_vars and s.time < time


def _is_needed(s: Step, one: InnerPass, steps: list[Step]) -> bool:
    return one.time >= s.time and any(x is s for x in _needed(one, steps))


def _work(s: Step, steps: list[Step], seen: set[int]) -> float:
    """What computing a value again costs, down to what is kept or does not vary."""
    if s.position in seen or s.kept or not s.varies:
        return 0.0
    seen.add(s.position)
    return OPS[s.op].work + sum(_work(steps[u], steps, seen) for u in s.uses)


def _overwritten_at(s: Step, steps: Iterable[Step]) -> float:
    later = [t.time for t in steps if t.position > s.position and t.stores in s.loads]
    return min(later, default=float("inf"))


def _wanted_singles(steps: list[Step], passes: dict[int, InnerPass]) -> set[int]:
    """Positions of statements outside the reduction loops that somebody needs."""
    wanted: set[int] = set()
    pending = [s for s in steps if s.acts and not s.varies]
    for one in passes.values():
        for s in one.needed:
            if not (s.kept and one.time > s.time):
                pending.extend(steps[u] for u in s.uses)
    while pending:
        s = pending.pop()
        if s.position in wanted or s.varies or s.op == "reduce" or s.over:
            continue
        wanted.add(s.position)
        pending.extend(steps[u] for u in s.uses)
    return wanted
