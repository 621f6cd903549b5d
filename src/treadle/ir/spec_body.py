"""Rules about loop bodies: form, types, bounds, and stores that cannot race."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from treadle.core.errors import Violation
from treadle.index import Domain, Expr, Facts, Interval, Kind, Symbol
from treadle.ir.body import Body, Numbered, Stmt, number_of, value_symbol
from treadle.ir.effects import effects
from treadle.ir.ops import OPS, STORE_MODES
from treadle.ir.program import Loop, Program
from treadle.ir.types import Buffer, BufferKind
from treadle.ir.typing import BodyTypeError, infer_types

BodyRule = Callable[[Body, Program], Iterator[tuple[str, str]]]


def bodies_are_sound(program: Program) -> Iterator[Violation]:
    """IR009 to IR014, body by body; a body of unsound form is not looked at further."""
    for op in program.leaves:
        if not isinstance(op, Loop):
            continue
        # A frozen operation found sound over the same buffers is still sound: most passes change
        # few operations, and only those are looked at again.
        surroundings = _surroundings(op, program)
        if op.__dict__.get("_sound_in") == surroundings:
            continue
        for rule in RULES:
            found = [Violation(code, message, op.name) for code, message in rule(op.body, program)]
            yield from found
            if found:
                break
        else:
            op.__dict__["_sound_in"] = surroundings


def _surroundings(op: Loop, program: Program) -> tuple[object, ...]:
    """Everything outside the body that the rules look at."""
    known = program.by_name
    names = [n for t in effects(op).touched for n in (t, program.storage_of(t))]
    return (program.sizes, *[known.get(n) for n in names])


def _at(n: Numbered) -> str:
    return f"%{n.number}" if n.number is not None else n.stmt.op


# ------------------------------------------------------------------------------------- form


def form(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR009: known operations, right arity, operands defined before and in view."""
    yield from _form_of_block(body.stmts, [0], set(), "")


def _form_of_block(
    stmts: tuple[Stmt, ...], counter: list[int], visible: set[int], owner: str
) -> Iterator[tuple[str, str]]:
    for position, stmt in enumerate(stmts):
        definition = OPS.get(stmt.op)
        if definition is None:
            yield "IR009", f"unknown operation '{stmt.op}'"
            return
        number = counter[0]
        here = f"%{number} = {stmt.op}" if definition.produces else stmt.op
        counter[0] += definition.produces
        if definition.arity is not None and len(stmt.args) != definition.arity:
            yield "IR009", f"{here} takes {definition.arity} operands, not {len(stmt.args)}"
        if len(stmt.attrs) != len(definition.attrs):
            wanted = ", ".join(definition.attrs) or "none"
            yield "IR009", f"{here} has {len(stmt.attrs)} attributes; it takes {wanted}"
            continue
        for a in stmt.args:
            if a not in visible:
                yield "IR009", f"{here} uses %{a}, which is not defined before it in view"
        yield from _form_of_place(stmt, here, owner, position == len(stmts) - 1)
        if stmt.region:
            inner = set(visible)
            yield from _form_of_block(stmt.region, counter, inner, stmt.op)
        if definition.produces:
            visible.add(number)


def _form_of_place(stmt: Stmt, here: str, owner: str, last: bool) -> Iterator[tuple[str, str]]:
    needs_region = stmt.op == "masked" or (stmt.op == "scan" and stmt.attrs[0] == "region")
    if needs_region != bool(stmt.region):
        yield "IR009", f"{here} {'needs' if needs_region else 'has no use for'} a region"
    if owner and last != (stmt.op == "yield"):
        yield "IR009", f"yield must be the last statement of the region of {owner}"
    if not owner and stmt.op in ("yield", "param"):
        yield "IR009", f"{stmt.op} may stand only in a region"
    if owner and stmt.op in ("store", "reduce", "scan", "sort"):
        yield "IR009", f"{stmt.op} may not stand in a region"
    if owner == "masked" and stmt.op == "param":
        yield "IR009", "the region of masked has no parameters"
    if stmt.op == "store" and stmt.attrs[2] not in STORE_MODES:
        yield "IR009", f"unknown store mode '{stmt.attrs[2]}'"


# ------------------------------------------------------------------------------------ types


def types(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR010: every operation gets element types it accepts; tokens and tuples hold no elements."""
    for at in body.walk():
        if at.stmt.op in ("load", "store", "bucketize"):
            buffer = program.by_name.get(str(at.stmt.attrs[0]))
            if buffer is not None and buffer.kind is not BufferKind.TENSOR:
                yield "IR010", f"{at.stmt.op} of {buffer.name}, which is a {buffer.kind.value}"
                return
    try:
        infer_types(body, program.by_name)
    except BodyTypeError as e:
        yield "IR010", str(e)


# ---------------------------------------------------------------------------------- indices


def index_names(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR011: index expressions use this body's loops, declared sizes, and indirect values."""
    allowed = {*body.space.vars, *program.sizes}
    sizes = set(program.sizes)
    for v, n in body.space.items():
        if n.free - sizes:
            yield "IR011", f"the extent {n} of loop {v} is not made of declared sizes"
        if v in sizes or any(v.name == s.name for s in sizes):
            yield "IR011", f"loop {v} has the name of a size"
    visible: dict[int, set[int]] = {0: set()}
    for at in body.walk():
        if at.depth not in visible or at.depth > max(visible):
            visible[at.depth] = set(visible[at.depth - 1])
        for deeper in [d for d in visible if d > at.depth]:
            del visible[deeper]
        for e in at.stmt.attrs:
            if isinstance(e, Expr):
                yield from _names_of(e, at, allowed, visible[at.depth])
        if at.stmt.op == "indirect" and at.number is not None:
            visible[at.depth].add(at.number)


def _names_of(
    e: Expr, at: Numbered, allowed: set[Symbol], values: set[int]
) -> Iterator[tuple[str, str]]:
    for s in sorted(e.free, key=lambda s: s.order):
        if s.kind is Kind.INDIRECT:
            if not s.name[1:].isdigit() or number_of(s) not in values:
                yield "IR011", f"{_at(at)}: {s.name} in {e} is no indirect value in view"
        elif s not in allowed:
            yield "IR011", f"{_at(at)}: {s.name} in {e} is neither a loop nor a size"


def facts_of(body: Body) -> Facts:
    """What is known inside the body: loop extents, and sizes of indirect values."""
    indirect: dict[Symbol, Expr] = {}
    for at in body.walk():
        if at.stmt.op == "indirect" and at.number is not None and at.stmt.attr("check"):
            size = at.stmt.attr("size")
            assert isinstance(size, Expr)
            indirect[value_symbol(at.number)] = size
    if not indirect:
        return body.space.facts  # shared between all bodies over the same loops
    return Facts({**dict(body.space.items()), **indirect})


def bounds(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR012: every access is provably inside its buffer, or marked unproven, or under a mask."""
    facts = facts_of(body)
    empty = any(n.value == 0 for n in body.space.extents)
    for at in body.walk():
        if at.stmt.op not in ("load", "store") or empty:
            continue
        buffer = program.by_name[str(at.stmt.attrs[0])]
        index = at.stmt.attrs[1]
        assert isinstance(index, Expr)
        limit = storage_limit(buffer, program)
        if facts.within(index, limit):
            continue
        low, high = facts.interval(index)
        outside = (high is not None and high < 0) or facts.at_most(limit, index)
        if at.depth == 0 and not at.stmt.attr("unproven"):
            shown = f"{'-inf' if low is None else low}..{'inf' if high is None else high}"
            word = "is outside" if outside else "is not provably inside"
            yield (
                "IR012",
                (
                    f"{at.stmt.op} {buffer.name}[{index}] ranges over {shown}, which {word} "
                    f"0..{limit}; fix the index or mark it unproven"
                ),
            )


def storage_limit(buffer: Buffer, program: Program) -> Expr:
    """How many elements of `buffer`'s type its storage holds."""
    root = program.by_name[program.storage_of(buffer.name)]
    if root is buffer or root.dtype.itemsize == buffer.dtype.itemsize:
        return root.storage_numel
    return (root.storage_numel * root.dtype.itemsize) // buffer.dtype.itemsize


# ----------------------------------------------------------------------------------- levels


def varying(body: Body) -> list[bool]:
    """For each value, whether it may differ between points of the reduction loops."""
    reduce_vars = set(body.reduce.vars)
    result: list[bool] = []
    masks: list[bool] = []
    for at in body.walk():
        del masks[at.depth :]
        stmt = at.stmt
        inner = any(result[a] for a in stmt.args) or any(masks)
        for e in stmt.attrs:
            if isinstance(e, Expr):
                inner = inner or bool(e.free & reduce_vars)
                inner = inner or any(
                    result[number_of(s)] for s in e.free if s.kind is Kind.INDIRECT
                )
        if stmt.op == "reduce":
            inner = False
        elif stmt.op in ("scan", "sort"):
            inner = True
        if at.number is not None:
            result.append(inner)
        if stmt.region:
            masks.append(inner)
            # What the region yields is known only after it: assume it varies if a load may.
            if _region_varies(stmt, reduce_vars):
                result[-1] = True
    return result


def _region_varies(stmt: Stmt, reduce_vars: set[Symbol]) -> bool:
    for inner in stmt.region:
        exprs = [e for e in inner.attrs if isinstance(e, Expr)]
        if any(e.free & reduce_vars for e in exprs) or _region_varies(inner, reduce_vars):
            return True
        if any(s.kind is Kind.INDIRECT for e in exprs for s in e.free):
            return True
    return False


def reductions_have_loops(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR013: reduce, scan and sort need reduction loops, and reduction loops need one of them."""
    combining = [at for at in body.walk() if at.stmt.op in ("reduce", "scan", "sort")]
    if combining and not len(body.reduce):
        yield "IR013", f"{_at(combining[0])}: {combining[0].stmt.op} without reduction loops"
    if len(body.reduce) and not combining:
        yield "IR013", "reduction loops, but nothing combines over them"


def stores_cannot_race(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR014: a plain store goes to another element at each point and meets no other access."""
    varies = varying(body)
    reduce_vars = set(body.reduce.vars)
    seen: Mapping[str, list[Expr]] = _plain_indices(body, program)
    facts = facts_of(body)
    for name, index, mode, at in body.stores():
        at_reduced = bool(index.free & reduce_vars)
        if mode == "plain":
            yield from _repeats(name, index, body.space if at_reduced else body.domain)
            if not at_reduced and varies[at.stmt.args[0]]:
                yield (
                    "IR014",
                    (
                        f"store {name}[{index}] writes %{at.stmt.args[0]}, which differs along the "
                        "reduction loops, to one element"
                    ),
                )
        others = [
            e
            for e in seen[program.storage_of(name)]
            if e is not index and not _apart(facts.interval(e), facts.interval(index))
        ]
        if others and mode == "plain":
            yield (
                "IR014",
                (f"{name} is stored at {index} and touched at {others[0]} in the same body"),
            )


def _apart(a: Interval, b: Interval) -> bool:
    """Whether two ranges of indices share no element."""
    below = a.hi is not None and b.lo is not None and a.hi < b.lo
    return below or (b.hi is not None and a.lo is not None and b.hi < a.lo)


def _plain_indices(body: Body, program: Program) -> dict[str, list[Expr]]:
    """Indices by storage, of loads and stores alike, each once."""
    seen: dict[str, list[Expr]] = {}
    touches = [(n, e) for n, e, _ in body.loads()] + [(n, e) for n, e, _, _ in body.stores()]
    for name, index in touches:
        row = seen.setdefault(program.storage_of(name), [])
        if index not in row:
            row.append(index)
    return seen


def _repeats(name: str, index: Expr, domain: Domain) -> Iterator[tuple[str, str]]:
    if any(s.kind is Kind.INDIRECT for s in index.free):
        return  # a scatter: which of equal indices wins is documented, not an error
    for v, n in domain.items():
        if n.value != 1 and v not in index.free:
            message = f"store {name}[{index}] hits the same element at every step of loop {v}"
            yield "IR014", message


RULES: tuple[BodyRule, ...] = (
    form,
    types,
    index_names,
    bounds,
    reductions_have_loops,
    stores_cannot_race,
)
BODY_RULES = (bodies_are_sound,)
