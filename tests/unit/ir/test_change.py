"""Rewriting bodies: numbers follow, unused values go, nothing else changes."""

from __future__ import annotations

from dataclasses import replace

from treadle.ir.body import Body, Stmt
from treadle.ir.program import Loop, Program
from treadle.ir.rewrite import BodySource, Rewriter, map_stmts, pruned, rewritten
from treadle.ir.spec import verify
from treadle.ir.text import parse_program, show_program

HEAD = """treadle 1
program p
inputs x, k
outputs y

buffer x : f32[8] on cpu
buffer k : i64[8] on cpu
buffer y : f32[8] on cpu

"""


def program(*lines: str) -> Program:
    body = "".join(f"  {line}\n" for line in lines)
    return verify(parse_program(f"{HEAD}loop a on cpu for i in 8 {{\n{body}}}\n"))


def body_of(p: Program) -> Body:
    (op,) = p.ops
    assert isinstance(op, Loop)
    return op.body


def shown(p: Program, body: Body) -> list[str]:
    new = verify(p.with_ops((replace(p.ops[0], body=body),)))  # type: ignore[type-var]
    text = show_program(new)
    inside = text.partition("{\n")[2].rpartition("}\n")[0]
    return [line.strip() for line in inside.splitlines()]


def no_double_negation(rewriter: Rewriter, stmt: Stmt) -> int | None:
    inner = rewriter.made.get(stmt.args[0]) if stmt.op == "neg" else None
    return inner.args[0] if inner is not None and inner.op == "neg" else None


def test_values_are_replaced_and_what_nobody_uses_goes() -> None:
    p = program(
        "%0 = load x[i]",
        "%1 = neg %0",
        "%2 = neg %1",
        "%3 = neg %2",
        "%4 = neg %3",
        "%5 = add %4, %0",
        "store y[i] = %5",
    )
    assert shown(p, rewritten(body_of(p), no_double_negation)) == [
        "%0 = load x[i]",
        "%1 = add %0, %0",
        "store y[i] = %1",
    ]


def test_a_body_in_which_nothing_is_replaced_is_the_same_object() -> None:
    p = program("%0 = load x[i]", "%1 = neg %0", "%2 = exp %0", "store y[i] = %1")
    assert rewritten(body_of(p), no_double_negation) is body_of(p)


def test_indices_and_regions_follow_the_new_numbers_and_checks_stay() -> None:
    p = program(
        "%0 = load x[i]",
        "%1 = neg %0",
        "%2 = neg %1",
        "%3 = load k[i]",
        "%4 = indirect %3 size 8 check",
        "%5 = load x[%4]",
        "%6 = lt %5, %2",
        "%7 = masked %6 else 0.0 {",
        "  %8 = load x[%4]",
        "  %9 = neg %8",
        "  %10 = neg %9",
        "  yield %10",
        "}",
        "store y[i] = %7",
    )
    assert shown(p, rewritten(body_of(p), no_double_negation)) == [
        "%0 = load x[i]",
        "%1 = load k[i]",
        "%2 = indirect %1 size 8 check",
        "%3 = load x[%2]",
        "%4 = lt %3, %0",
        "%5 = masked %4 else 0.0 {",
        "%6 = load x[%2]",
        "yield %6",
        "}",
        "store y[i] = %5",
    ]


def test_a_replacement_may_be_emitted() -> None:
    p = program("%0 = load x[i]", "%1 = add %0, %0", "%2 = exp %1", "store y[i] = %2")

    def doubled(rewriter: Rewriter, stmt: Stmt) -> int | None:
        if stmt.op != "add" or stmt.args[0] != stmt.args[1]:
            return None
        return rewriter.emit(Stmt("mul", (stmt.args[0], stmt.args[0])))

    assert shown(p, rewritten(body_of(p), doubled)) == [
        "%0 = load x[i]",
        "%1 = mul %0, %0",
        "%2 = exp %1",
        "store y[i] = %2",
    ]


# ------------------------------------------------------------------- parts of bodies, joined


WITH_A_REGION = (
    "%0 = load x[i]",
    "%1 = neg %0",
    "%2 = lt %0, %1",
    "%3 = masked %2 else 0.0 {",
    "  %4 = load x[7 - i]",
    "  %5 = exp %4",
    "  yield %4",
    "}",
    "%6 = load k[i]",
    "%7 = indirect %6 size 8 check",
    "%8 = load x[%7]",
    "store y[i] = %3",
)


def test_a_copy_is_equal() -> None:
    p = program(*WITH_A_REGION)
    rewriter = Rewriter()
    BodySource(rewriter).take(body_of(p).stmts)
    assert rewriter.stmts == body_of(p).stmts
    assert {n: s.op for n, s in rewriter.made.items()} == {
        at.number: at.stmt.op for at in body_of(p).walk() if at.number is not None
    }


def test_a_second_source_goes_on_counting_over_other_loops() -> None:
    p = program("%0 = load x[i]", "%1 = load k[i]", "%2 = indirect %1 size 8 check",
                "%3 = load x[%2]", "%4 = add %0, %3", "store y[i] = %4")  # fmt: skip
    body, rewriter = body_of(p), Rewriter()
    values = [s for s in body.stmts if s.op != "store"]
    (i,) = body.domain.vars
    first, second = BodySource(rewriter), BodySource(rewriter, loops={i: 7 - i})
    first.take(values)
    second.take(values)
    total = rewriter.emit(Stmt("add", (first.numbers[4], second.numbers[4])))
    rewriter.emit(body.stmts[-1]._replace(args=(total,)))
    assert shown(p, replace(body, stmts=rewriter.stmts))[5:] == [
        "%5 = load x[-i + 7]",
        "%6 = load k[-i + 7]",
        "%7 = indirect %6 size 8 check",
        "%8 = load x[%7]",
        "%9 = add %5, %8",
        "%10 = add %4, %9",
        "store y[i] = %10",
    ]


def test_a_statement_without_a_value_takes_nobodys_number() -> None:
    p = program("%0 = load x[i]", "store y[i] = %0", "%1 = neg %0", "store y[i] = %1")
    body, rewriter = body_of(p), Rewriter()
    source = BodySource(rewriter)
    for at in body.walk():
        source.take((at.stmt,), at.number)
    assert rewriter.stmts == body.stmts


def test_what_is_left_out_takes_its_region_along() -> None:
    p = program(*WITH_A_REGION, "%9 = exp %0", "store y[i] = %9")
    rewriter = Rewriter()
    BodySource(rewriter, without={1, 2, 3}).take([s for s in body_of(p).stmts if s.args != (3,)])
    assert [s.op for s in rewriter.stmts] == ["load", "load", "indirect", "load", "exp", "store"]
    assert rewriter.stmts[-1].args == (4,)


def test_only_what_acts_and_what_that_needs_is_left() -> None:
    p = program(*WITH_A_REGION)
    assert shown(p, replace(body_of(p), stmts=pruned(body_of(p).stmts))) == [
        "%0 = load x[i]",
        "%1 = neg %0",
        "%2 = lt %0, %1",
        "%3 = masked %2 else 0.0 {",
        "%4 = load x[-i + 7]",
        "yield %4",
        "}",
        "store y[i] = %3",
    ]
    short = pruned(body_of(p).stmts)
    assert pruned(short) is short


def test_statements_changed_one_by_one_keep_their_numbers() -> None:
    p = program(*WITH_A_REGION)
    stmts = body_of(p).stmts
    assert map_stmts(stmts, lambda s: s) is stmts
    changed = map_stmts(stmts, lambda s: s._replace(op="log") if s.op == "exp" else s)
    assert "%5 = log %4" in shown(p, replace(body_of(p), stmts=changed))
