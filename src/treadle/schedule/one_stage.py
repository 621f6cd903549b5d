"""Undoing a reduction in two stages: one reduction over both stages' loops.

    two stages   p[32*i + b] = max(x[4096*i + 128*b + r]) ; s[i] = max(p[32*i + b])
    one stage    s[i] = max(x[4096*i + 128*b + r])        reduce b in 32, r in 128

Only where the result is the same to the last bit: largest, smallest, whole numbers, and sums that
the first stage keeps in f64 and the second rounds.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.index import Domain, Expr, Symbol, substitute
from treadle.index.expr import IntLike
from treadle.ir.body import Body, Numbered, Stmt
from treadle.ir.program import Loop, Program
from treadle.ir.reduced import reduced_once
from treadle.ir.rewrite import BodySource, Rewriter
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import infer_types
from treadle.schedule.two_stages import EXACT, fresh_loop


def as_one_stage(first: Loop, second: Loop, buffer: Buffer, program: Program) -> Loop | None:
    """`second` with the reduction that `first` makes inside it; None if they do not fit."""
    made, taken = _only_reduction(first.body), _only_reduction(second.body)
    if made is None or taken is None or made.stmt.attr("kind") != taken.stmt.attr("kind"):
        return None
    if not reduced_once(first.body) or not reduced_once(second.body):
        return None
    stored, loaded = _store_of(first.body, made), _load_of(second.body, taken, buffer.name)
    if stored is None or loaded is None or not _is_exact(made, taken, first, second, program):
        return None
    outer, inner = first.body.domain, second.body.space
    if outer.extents != inner.extents:
        return None
    loops: dict[Symbol, IntLike] = dict(zip(outer.vars, inner.vars, strict=True))
    if substitute(stored, loops) is not loaded:
        return None
    return replace(second, body=_merged(first.body, second.body, made, taken, loops))


def _merged(
    first: Body, second: Body, made: Numbered, taken: Numbered, loops: dict[Symbol, IntLike]
) -> Body:
    pairs: list[tuple[Symbol, Expr]] = []
    for v, n in first.reduce.items():
        new = fresh_loop(v.name, Body(second.domain, Domain([*second.reduce.items(), *pairs]), ()))
        loops[v] = new
        pairs.append((new, n))
    rewriter = Rewriter()
    inside = BodySource(rewriter, loops)
    inside.take([s for s in first.stmts if s.op != "store"])
    assert made.number is not None, "a reduction has a value"
    assert taken.number is not None, "a reduction has a value"
    # The load of the partial results and their reduction are what `made` is now.
    around = BodySource(rewriter, without={taken.stmt.args[0], taken.number})
    around.numbers[taken.number] = inside.numbers[made.number]
    around.take(second.stmts)
    reduce = Domain([*second.reduce.items(), *pairs])
    return Body(second.domain, reduce, rewriter.stmts)


def _only_reduction(body: Body) -> Numbered | None:
    found = [at for at in body.walk() if at.stmt.op == "reduce"]
    return found[0] if len(found) == 1 else None


def _store_of(body: Body, made: Numbered) -> Expr | None:
    """Where the reduction is stored, if that is all the loop stores."""
    stores = list(body.stores())
    if len(stores) != 1 or stores[0][2] != "plain" or stores[0][3].stmt.args != (made.number,):
        return None
    return stores[0][1]


def _load_of(body: Body, taken: Numbered, buffer: str) -> Expr | None:
    """The one load of the buffer, if it feeds the reduction and nothing else."""
    loads = [(index, at) for name, index, at in body.loads() if name == buffer]
    if len(loads) != 1 or loads[0][1].depth or taken.stmt.args != (loads[0][1].number,):
        return None
    number = loads[0][1].number
    users = [at for at in body.walk() if number in at.stmt.args]
    return loads[0][0] if len(users) == 1 else None


def _is_exact(made: Numbered, taken: Numbered, first: Loop, second: Loop, program: Program) -> bool:
    """Whether one reduction gives what two give, bit for bit."""
    assert made.number is not None, "a reduction has a value"
    assert taken.number is not None, "a reduction has a value"
    one = infer_types(first.body, program.by_name)[made.number]
    other = infer_types(second.body, program.by_name)[taken.number]
    (store,) = first.body.stores()
    if one is not other or program.by_name[store[0]].dtype is not one:
        return False
    kind = str(made.stmt.attr("kind"))
    if kind in EXACT:
        return True
    if kind not in ("sum", "prod") or not isinstance(one, DType):
        return False
    if not one.is_float:
        return True
    users = [at.stmt for at in second.body.walk() if taken.number in at.stmt.args]
    return one is DType.F64 and all(_rounds(s, program) for s in users)


def _rounds(stmt: Stmt, program: Program) -> bool:
    """Whether a use of an f64 value keeps only the digits of a narrower type."""
    if stmt.op == "cast":
        to = stmt.attr("dtype")
        return isinstance(to, DType) and to.is_float and to.bits < 64
    if stmt.op != "store":
        return False
    to = program.by_name[stmt.buffer].dtype
    return to.is_float and to.bits < 64
