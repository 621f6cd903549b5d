"""One text form: what is printed reads back as an equal program."""

from __future__ import annotations

import math
import pickle

import pytest

from treadle.index import Domain
from treadle.index import loop as loop_var
from treadle.ir.body import Body, Literal, Stmt
from treadle.ir.build import ProgramBuilder
from treadle.ir.ops import OPS
from treadle.ir.program import (
    GROUP_KINDS,
    LEAF_KINDS,
    Foreach,
    Fused,
    Grouped,
    Kernel,
    MixOrder,
    Nest,
    Program,
)
from treadle.ir.spec import verify
from treadle.ir.text import parse_program, show_program
from treadle.ir.text_body import PARSERS
from treadle.ir.text_print import KEYWORDS, PRINTERS
from treadle.ir.types import BufferKind


def everything() -> Program:
    """A program with every kind of operation and every form of statement."""
    b = ProgramBuilder("every thing")
    n = b.size("n", 2, 64, divisor=2, hint=8)
    x = b.input("x", "f32", [16, n])
    seeds = b.input("seeds", "i64", [16], donated=True)
    odd = b.input("odd-name", "bf16", [16], strides=[2], offset=3)
    b.view("half", x, [8, n], offset=8 * n)
    y = b.output("y", "f32", [16, n])
    z = b.buffer("z", "f32", [16])
    with b.loop("every", [16], reduce=[n], origins=['aten."sum"', "a.py:3"]) as k:
        i, j = k.vars
        v = k.load(x, i, j)
        low = k.load(odd, i).to("f32")
        seed = k.load(seeds, i)
        at = k.indirect(k.bitwise_and(seed, 7), 8, wrap=True)
        m = k.masked(v > 0, -0.0, lambda: k.load(x, at, j))
        total = k.scan_region([m, low], lambda a, p, c, q: [a + c, p + q])
        mean, m2, weight = k.welford(total[0])
        where = k.bucketize(v, z, right=True)
        ranked, order = k.sort(v, k.index(j), descending=True)
        r = k.random("rand", seed, k.index(i * 3)) + k.random("randn", seed, seed)
        r = r + k.randint(seed, seed, seed, seed).to("f32") + order.to("f32") + where.to("f32")
        bits = k.bitcast(v, "i32")
        r = r + k.to_int("round", v, "i32").to("f32") + bits.to("f32") + ranked + mean * m2 + weight
        r = k.where(k.isnan(r), k.constant(math.nan, "f32"), k.constant(-math.inf, "f32")) + r
        k.check(k.isfinite(v), 'not "finite"')
        asm = k.emit("inline_asm", [v], ("cvt \n;", "=r,r", v.dtype, True, 1))
        k.store(y, (i, j), k.scan("add", r + asm + k.frexp(v)[0]))
        k.store(z, (i,), k.sum(v, element="f64"), mode="plain")
    b.nop(b.buffer("scratch", "u8", [3]))
    pair = b.token("pair", BufferKind.TUPLE)
    b.extern("aten.split", [x, 2, [1, [None, n * 2]], "dim"], [pair], attrs={"alpha": 1.5})
    part = b.buffer("part", "f32", [4])
    b.take(part, pair, 1)
    b.template("mm", [x, part], [b.buffer("prod", "f32", [4])], prologue_slots=("x",))
    b.user_kernel("my_kernel", [x, part], mutates=[part], has_side_effects=True, after=["every"])
    b.collective("all_reduce", [part], mutates=[part], group="tp")
    b.wait(part)
    for kind in (Fused, MixOrder, Foreach, Grouped):
        with b.group(kind, f"group_{kind.__name__}"), b.loop(None, []) as k:
            k.store(b.buffer(f"one_{kind.__name__}", "i8", []), (), 3)
    with b.loop("part", [2], reduce=[3, 4]) as k:
        part = k.emit("reduce_part", [k.load(x, *k.vars[:2])], ("max", None, k.vars[2]))
        k.store(b.buffer("parts", "f32", [2, 3]), k.vars[:2], part)
    program = b.build()
    (*ops, part_of) = program.ops
    nest = Nest(name="nest", body=part_of.body, runs=("part", "other"))
    return program.with_ops((*ops, nest, Kernel(name="all", members=(nest,), shape="fused")))


def test_print_then_parse_gives_an_equal_program() -> None:
    program = everything()
    text = show_program(program)
    assert parse_program(text) == program
    assert show_program(parse_program(text)) == text


def test_the_example_uses_every_kind_of_operation() -> None:
    kinds = {type(op) for op in everything().ops}
    assert kinds >= set(LEAF_KINDS)
    assert kinds >= set(GROUP_KINDS)


def test_pickling_keeps_a_program_equal() -> None:
    program = everything()
    assert pickle.loads(pickle.dumps(program)) == program


def test_every_statement_and_kind_can_be_printed_and_parsed() -> None:
    assert set(PRINTERS) == set(OPS) == set(PARSERS)
    assert set(KEYWORDS) == {*LEAF_KINDS, *GROUP_KINDS}


def test_comments_and_blank_lines_are_passed_over() -> None:
    text = show_program(everything())
    commented = "# a note\n\n" + text.replace("\nloop", "\n  # another\n\nloop")
    assert parse_program(commented) == everything()


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1e-300, 0.1, math.inf, -math.inf, math.nan, 3, True, None, "a\nb", -7]
)
def test_literals_come_back_exactly(value: object) -> None:
    b = ProgramBuilder("p")
    b.extern("f", [value], [b.output("y", "f32", [1])])
    program = b.build()
    assert parse_program(show_program(program)) == program


def test_literals_that_python_calls_equal_are_kept_apart() -> None:
    assert Literal(0.0) != Literal(-0.0)
    assert Literal(1) != Literal(1.0)
    assert Literal(True) != Literal(1)
    assert Literal(math.nan) == Literal(float("nan"))
    with pytest.raises(AttributeError, match="cannot be changed"):
        Literal(1).value = 2


def test_bodies_that_compute_the_same_are_equal_objects_whatever_they_were_called() -> None:
    def body() -> Body:
        b = ProgramBuilder("p")
        x = b.input("x", "f32", [8])
        with b.loop("a", [8]) as k:
            k.store(x, k.vars, k.exp(k.load(x, *k.vars)))
        return b.build().ops[0].body

    assert body() == body()
    assert hash(body()) == hash(body())


def test_walk_numbers_values_in_writing_order_regions_after_their_owner() -> None:
    i = loop_var("i")
    inner = (Stmt("load", (), ("x", i, False)), Stmt("yield", (2,)))
    stmts = (
        Stmt("load", (), ("x", i, False)),
        Stmt("masked", (0,), (Literal(0.0),), inner),
        Stmt("store", (1,), ("y", i, "plain", False)),
        Stmt("neg", (1,)),
    )
    found = [
        (at.number, at.stmt.op, at.depth) for at in Body(Domain.of(i=4), Domain(), stmts).walk()
    ]
    assert found == [
        (0, "load", 0),
        (1, "masked", 0),
        (2, "load", 1),
        (None, "yield", 1),
        (None, "store", 0),
        (3, "neg", 0),
    ]


def test_the_readme_example_is_sound() -> None:
    b = ProgramBuilder("demo")
    x = b.input("x", "f32", [128, 256])
    y = b.output("y", "f32", [128, 256])
    with b.loop("softmax", [128], reduce=[256]) as k:
        i, j = k.vars
        v = k.load(x, i, j)
        e = k.exp(v - k.max(v))
        k.store(y, (i, j), e / k.sum(e))
    verify(b.build())
