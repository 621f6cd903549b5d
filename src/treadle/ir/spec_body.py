"""Rules about loop bodies: form, types, names and bounds (races: see `spec_races`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from treadle.core.errors import Violation
from treadle.index import Expr, Facts, FloorDiv, Kind, Mod, Symbol
from treadle.ir.body import COMBINING, Body, Literal, Numbered, Scalar, Stmt, number_of
from treadle.ir.ops import OPS, SCAN_COMBINES, STORE_MODES
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Loop, Nest, Program
from treadle.ir.spec_facts import facts_of, storage_limit
from treadle.ir.spec_names import PLAIN_NAME
from treadle.ir.spec_races import LOOP_RULES, RACE_RULES
from treadle.ir.types import BufferKind, DType
from treadle.ir.typing import BodyTypeError, ValueType, infer_types

BodyRule = Callable[[Body, Program], Iterator[tuple[str, str]]]
BITWISE_MODES = frozenset({"atomic_and", "atomic_or", "atomic_xor"})


def bodies_are_sound(program: Program) -> Iterator[Violation]:
    """IR009 to IR014, body by body; a body of unsound form is not looked at further."""
    for op in program.leaves:
        if not isinstance(op, Loop) or program.knows(op, "_is_sound"):
            continue
        pattern, names = pattern_of(op)
        is_nest = isinstance(op, Nest)
        surroundings = _surroundings(names, program, is_nest)
        # Programs repeat a few bodies: one that was sound over buffers of this form still is.
        if surroundings is not None and surroundings in pattern.derive(_sound_in):
            program.note(op, "_is_sound")
            continue
        for rule in RULES if is_nest else (*RULES, *LOOP_RULES):
            found = [Violation(code, message, op.name) for code, message in rule(op.body, program)]
            yield from found
            if found:
                break
        else:
            if surroundings is not None:
                pattern.derive(_sound_in).add(surroundings)


def _sound_in(body: Body) -> set[tuple[object, ...]]:
    """The surroundings in which a pattern has been found sound so far."""
    return set()


def _surroundings(
    names: tuple[str, ...], program: Program, is_nest: bool
) -> tuple[object, ...] | None:
    """Everything outside a body that the rules look at, buffers by their form; None if unknown."""
    known = program.by_name
    forms: list[object] = [program.sizes, is_nest]
    roots: dict[str, int] = {}
    for name in names:
        buffer = known.get(name)
        if buffer is None:
            return None
        forms.append((buffer.dtype, buffer.layout, buffer.kind))
        root = program.storage_of(name)
        if root != name:
            forms.append((known[root].dtype, known[root].layout))
        # Two names of one storage may collide: whose storage it is counts too.
        forms.append(roots.setdefault(root, len(roots)))
    return tuple(forms)


def _at(n: Numbered) -> str:
    return f"%{n.number}" if n.number is not None else n.stmt.op


# ------------------------------------------------------------------------------------- form


def form(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR009: known operations, right arity, operands defined before and in view."""
    for v in body.domain.vars:
        if v in body.reduce.vars:
            yield "IR009", f"loop {v} is both an iteration loop and a reduction loop"
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
        yield from _form_of_operands(stmt, here)
        for a in stmt.args:
            if a not in visible:
                yield "IR009", f"{here} uses %{a}, which is not defined before it in view"
        yield from _form_of_place(stmt, here, owner, position == len(stmts) - 1)
        if stmt.region:
            inner = set(visible)
            yield from _form_of_block(stmt.region, counter, inner, stmt.op)
        if definition.produces:
            visible.add(number)


def _form_of_operands(stmt: Stmt, here: str) -> Iterator[tuple[str, str]]:
    """Operands of the operations that take several: a scan as its combine says, a sort one."""
    combine = stmt.attr("combine") if stmt.op == "scan" else None
    if stmt.op == "scan" and combine not in SCAN_COMBINES:
        yield "IR009", f"unknown combination '{combine}'"
    if stmt.op == "scan" and combine not in ("region", "unknown"):
        wanted = 2 if combine in ("argmax", "argmin") else 1
        if len(stmt.args) != wanted:
            yield "IR009", f"{here} {combine} takes {wanted} operands, not {len(stmt.args)}"
    elif stmt.op in COMBINING and not stmt.args:
        yield "IR009", f"{here} takes at least one operand"


def _form_of_place(stmt: Stmt, here: str, owner: str, last: bool) -> Iterator[tuple[str, str]]:
    needs_region = stmt.op == "masked" or (stmt.op == "scan" and stmt.attr("combine") == "region")
    if needs_region != bool(stmt.region):
        yield "IR009", f"{here} {'needs' if needs_region else 'has no use for'} a region"
    if owner and last != (stmt.op == "yield"):
        yield "IR009", f"yield must be the last statement of the region of {owner}"
    if not owner and stmt.op in ("yield", "param"):
        yield "IR009", f"{stmt.op} may stand only in a region"
    if owner and (stmt.op == "store" or stmt.op in COMBINING):
        yield "IR009", f"{stmt.op} may not stand in a region"
    if owner == "masked" and stmt.op == "param":
        yield "IR009", "the region of masked has no parameters"
    if stmt.op == "store" and stmt.mode not in STORE_MODES:
        yield "IR009", f"unknown store mode '{stmt.mode}'"


# ------------------------------------------------------------------------------------ types


def types(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR010: every operation gets element types it accepts; tokens and tuples hold no elements."""
    for at in body.walk():
        if at.stmt.op in ("load", "store", "bucketize"):
            buffer = program.by_name.get(at.stmt.buffer)
            if buffer is not None and buffer.kind is not BufferKind.TENSOR:
                yield "IR010", f"{at.stmt.op} of {buffer.name}, which is a {buffer.kind.value}"
                return
    try:
        found = infer_types(body, program.by_name)
    except BodyTypeError as e:
        yield "IR010", str(e)
        return
    for at in body.walk():
        yield from _types_of_bits(at, found, program)
        for a in at.stmt.attrs:
            if isinstance(a, Literal) and not _is_number(a.value):
                yield "IR010", f"{_at(at)}: {a.value!r} is no number"


def _types_of_bits(
    at: Numbered, found: list[ValueType], program: Program
) -> Iterator[tuple[str, str]]:
    """What looks at bits needs values that have the bits in question."""
    stmt = at.stmt
    if stmt.op == "bitcast":
        given, to = found[stmt.args[0]], stmt.attr("dtype")
        if isinstance(given, DType) and isinstance(to, DType) and given.bits != to.bits:
            yield "IR010", f"{_at(at)}: bitcast of {given} to {to}, which has another width"
    if stmt.op == "store" and stmt.mode in BITWISE_MODES:
        buffer = program.by_name[stmt.buffer]
        if buffer.dtype.is_float:
            yield "IR010", f"{stmt.mode} of {buffer.name}, whose elements are {buffer.dtype}"


def _is_number(value: Scalar) -> bool:
    """Whether a literal can be an element; text such as "inf" can."""
    if value is None:
        return False
    try:
        float(value)
    except (ValueError, OverflowError):
        return False
    return True


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
        if not PLAIN_NAME.fullmatch(v.name):
            yield "IR011", f"loop {v.name!r} needs a plain name to be spoken of"
    visible: dict[int, set[int]] = {0: set()}
    for at in body.walk():
        if at.depth not in visible or at.depth > max(visible):
            visible[at.depth] = set(visible[at.depth - 1])
        for deeper in [d for d in visible if d > at.depth]:
            del visible[deeper]
        for e in at.stmt.attrs:
            if isinstance(e, Expr):
                yield from _names_of(e, at, allowed, visible[at.depth])
        if at.stmt.op == "bucketize":
            yield from _names_of_size(at, sizes)
        if at.stmt.op == "indirect" and at.number is not None:
            visible[at.depth].add(at.number)


def _names_of_size(at: Numbered, sizes: set[Symbol]) -> Iterator[tuple[str, str]]:
    count = at.stmt.attr("size")
    assert isinstance(count, Expr)
    if count.free - sizes:
        yield "IR011", f"{_at(at)}: the number of boundaries {count} is not made of declared sizes"


def _names_of(
    e: Expr, at: Numbered, allowed: set[Symbol], values: set[int]
) -> Iterator[tuple[str, str]]:
    for s in sorted(e.free, key=lambda s: s.order):
        if s.kind is Kind.INDIRECT:
            if not s.name[1:].isdigit() or number_of(s) not in values:
                yield "IR011", f"{_at(at)}: {s.name} in {e} is no indirect value in view"
        elif s not in allowed:
            yield "IR011", f"{_at(at)}: {s.name} in {e} is neither a loop nor a size"


def bounds(body: Body, program: Program) -> Iterator[tuple[str, str]]:
    """IR012: every access is provably inside its buffer, or marked unproven, or under a mask."""
    facts = facts_of(body)
    wrong = [*_divisions(body, facts), *_overflows(body, facts)]
    if wrong or any(n.value == 0 for n in body.domain.extents):
        yield from wrong
        return
    # Where only reduction loops are empty, what does not use them still happens.
    empty = {v for v, n in body.reduce.items() if n.value == 0}
    for at in body.walk():
        if at.stmt.op == "bucketize" and at.depth == 0:
            yield from _boundaries(at, facts, program)
        if at.stmt.op not in ("load", "store"):
            continue
        buffer, index = program.by_name[at.stmt.buffer], at.stmt.address
        if index.free & empty:
            continue
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


def _parts(body: Body) -> Iterator[tuple[Numbered, Expr]]:
    """Every index expression of the body and all that it is made of, with its statement."""
    for at in body.walk():
        stack = [e for e in at.stmt.attrs if isinstance(e, Expr)]
        while stack:
            e = stack.pop()
            if e.children:
                stack.extend(e.children)
                yield at, e
            elif not isinstance(e, Symbol):
                yield at, e


def _divisions(body: Body, facts: Facts) -> Iterator[tuple[str, str]]:
    """IR012 for divisors that can be 0 at some point; sizes alone are taken to be more."""
    for at, e in _parts(body):
        if not isinstance(e, FloorDiv | Mod):
            continue
        low, high = facts.interval(e.den)
        only_sizes = all(s.kind is Kind.SIZE for s in e.den.free) and (low, high) != (0, 0)
        if not only_sizes and (low is None or low < 1) and (high is None or high > -1):
            yield "IR012", f"{_at(at)}: {e} divides by {e.den}, which can be 0"
            return


def _overflows(body: Body, facts: Facts) -> Iterator[tuple[str, str]]:
    """IR012 for expressions that are sure to leave 64 bits at some point, on the way included."""
    for at, e in _parts(body):
        steps = [facts.interval(e), *[facts.interval(base).scaled(c) for base, c in e.terms]]
        known = [n for step in steps for n in step if n is not None]
        if any(not -(2**63) <= n < 2**63 for n in known):
            yield "IR012", f"{_at(at)}: {e} leaves 64 bits"
            return


def _boundaries(at: Numbered, facts: Facts, program: Program) -> Iterator[tuple[str, str]]:
    """IR012 for a search that looks beyond its buffer: it goes along the last dimension."""
    buffer, size = program.by_name[at.stmt.buffer], at.stmt.attr("size")
    assert isinstance(size, Expr)
    step = buffer.layout.strides[-1] if buffer.layout.strides else 1
    last = buffer.layout.offset + (size - 1) * step
    limit = storage_limit(buffer, program)
    if size.value != 0 and not (facts.nonnegative(last) and facts.less(last, limit)):
        message = f"bucketize looks at {size} boundaries, not provably inside 0..{limit}"
        yield "IR012", f"{message} of {buffer.name}"


RULES: tuple[BodyRule, ...] = (
    form,
    types,
    index_names,
    bounds,
    *RACE_RULES,
)
BODY_RULES = (bodies_are_sound,)
