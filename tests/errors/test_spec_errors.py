"""Every invariant of the verifier, broken on purpose: the right code and the exact message."""

from __future__ import annotations

import pytest

from treadle.core.codes import load_codes
from treadle.core.errors import SpecError
from treadle.index import Domain, loop
from treadle.ir.body import Body, Stmt, value_symbol
from treadle.ir.program import Loop, Program
from treadle.ir.spec import Stage, verify, violations
from treadle.ir.text import parse_program

HEAD = """treadle 1
program broken
inputs x
outputs y

buffer x : f32[8] on cpu
buffer y : f32[8] on cpu
"""
COPY = """
loop copy on cpu for i in 8 {
  %0 = load x[i]
  store y[i] = %0
}
"""


def body(*lines: str, loops: str = "for i in 8") -> str:
    inner = "\n".join(f"  {line}" for line in lines)
    return f"\nloop op on cpu {loops} {{\n{inner}\n}}\n"


CASES: dict[str, tuple[str, str]] = {
    "IR001": (
        HEAD + "buffer x : f32[8] on cpu\n" + COPY,
        "IR001 at x: buffer x is declared more than once",
    ),
    "IR002": (HEAD + COPY + COPY, "IR002 at copy: operation copy occurs more than once"),
    "IR003": (HEAD + COPY.replace("y[i]", "q[i]"), "IR003 at copy: unknown buffer q"),
    "IR020": (
        (HEAD + COPY).replace("cpu", "warp9"),
        "IR020 at x: there is no device warp9",
    ),
    "IR003 view": (
        HEAD + "buffer v : f32[8] on cpu view of gone\n" + COPY,
        "IR003 at v: a view of the unknown buffer gone",
    ),
    "IR003 output": (
        HEAD.replace("outputs y", "outputs y, z") + COPY,
        "IR003 at outputs: unknown buffer z in outputs",
    ),
    "IR004": (
        HEAD.replace("outputs y", "outputs y\ndonated y") + COPY,
        "IR004 at y: y is donated but is no input",
    ),
    "IR004 twice": (
        HEAD.replace("inputs x", "inputs x, x") + COPY,
        "IR004 at x: input x is listed more than once",
    ),
    "IR004 kind": (
        HEAD.replace("inputs x", "inputs x, t") + "buffer t : token on cpu\n" + COPY,
        "IR004 at t: input t is a token",
    ),
    "IR005": (
        HEAD + "buffer v : f32[8] offset 4 on cpu view of x\n" + COPY,
        "IR005 at v: a view of 48 bytes into the 32 bytes of x",
    ),
    "IR005 ring": (
        HEAD + "buffer a : f32[8] on cpu view of b\nbuffer b : f32[8] on cpu view of a\n" + COPY,
        "IR005 at a: its chain of views never reaches a storage",
    ),
    "IR005 device": (
        HEAD + "buffer v : f32[8] on cuda:0 view of x\n" + COPY,
        "IR005 at v: a view on cuda:0 of x on cpu",
    ),
    "IR005 kind": (
        HEAD + "buffer t : tuple on cpu\nbuffer v : f32[8] on cpu view of t\n" + COPY,
        "IR005 at v: t is a tuple, not a tensor",
    ),
    "IR006": (
        HEAD + COPY.replace(" {", " after (last) {") + COPY.replace("copy", "last"),
        "IR006 at copy: it must follow last, which stands later",
    ),
    "IR006 unknown": (
        HEAD + COPY.replace(" {", " after (gone) {"),
        "IR006 at copy: after the unknown operation gone",
    ),
    "IR008": (
        HEAD + "\ntake t on cpu y = x[0]\n",
        "IR008 at t: x is a tensor, not a tuple",
    ),
    "IR008 read": (
        HEAD
        + "buffer t : tuple on cpu\n"
        + '\nextern e on cpu call "f" (x) writes (t)\n'
        + '\nextern g on cpu call "h" (t) writes (y)\n',
        "IR008 at g: it reads the tuple t as a whole",
    ),
    "IR010": (
        HEAD + body("%0 = load x[i]", "%1 = bitwise_not %0", "store y[i] = %1"),
        "IR010 at op: bitwise_not takes an integer type or bool, not f32",
    ),
    "IR010 several": (
        HEAD + body("%0 = load x[i]", "%1 = frexp %0", "%2 = neg %1", "store y[i] = %2"),
        "IR010 at op: %1 has several results; take one with get",
    ),
    "IR010 token": (
        HEAD + "buffer t : token on cpu\n" + body("%0 = load t[i]", "store y[i] = %0"),
        "IR010 at op: load of t, which is a token",
    ),
    "IR012": (
        HEAD + body("%0 = load x[i + 1]", "store y[i] = %0"),
        "IR012 at op: load x[i + 1] ranges over 1..8, which is not provably inside 0..8; "
        "fix the index or mark it unproven",
    ),
    "IR012 outside": (
        HEAD + body("%0 = load x[i]", "store y[i + 9] = %0"),
        "IR012 at op: store y[i + 9] ranges over 9..16, which is outside 0..8; "
        "fix the index or mark it unproven",
    ),
    "IR013": (
        HEAD + body("%0 = load x[i]", "%1 = reduce sum %0", "store y[i] = %1"),
        "IR013 at op: %1: reduce without reduction loops",
    ),
    "IR013 idle": (
        HEAD + body("%0 = load x[i]", "store y[i] = %0", loops="for i in 8 reduce j in 4"),
        "IR013 at op: reduction loops, but nothing combines over them",
    ),
    "IR014": (
        HEAD + body("%0 = load x[i]", "store y[i] = %0", loops="for i in 8, j in 4"),
        "IR014 at op: store y[i] hits the same element at every step of loop j",
    ),
    "IR014 level": (
        HEAD
        + body(
            "%0 = load x[j]",
            "%1 = reduce sum %0",
            "store y[i] = %0",
            loops="for i in 8 reduce j in 8",
        ),
        "IR014 at op: store y[i] writes %0, which differs along the reduction loops, "
        "to one element",
    ),
    "IR014 meet": (
        HEAD
        + body("%0 = load y[7 - i]", "store y[i] = %0").replace("y[7", "x[7")
        + body("%0 = load y[-i + 7]", "store y[i] = %0").replace("loop op", "loop flip"),
        "IR014 at flip: y is stored at i and touched at -i + 7 in the same body",
    ),
    "IR014 sum": (
        HEAD
        + body(
            "%0 = load y[i]",
            "store y[i] = %0 mode atomic_add",
            loops="for i in 8, j in 4",
        ),
        "IR014 at op: y is stored at i and touched at i in the same body",
    ),
    "IR015": (
        HEAD + "buffer t : f32[8] on cpu\n" + COPY.replace("x[i]", "t[i]"),
        "IR015 at copy: it uses t, which nothing wrote before",
    ),
    "IR015 output": (HEAD, "IR015 at y: output y is never written"),
    "IR016": (
        HEAD + COPY.replace("on cpu", "on cuda:0"),
        "IR016 at copy: x is on cpu, the operation on cuda:0",
    ),
    "IR017": (
        HEAD + COPY + "\nwait w on cpu for y\n",
        "IR017 at w: no collective on y is under way",
    ),
    "IR017 touched": (
        HEAD
        + '\ncollective c on cpu call "all_reduce" (x) writes (y) group "0"\n'
        + body("%0 = load y[i]", "store x[i] = %0")
        + "\nwait w on cpu for y\n",
        "IR017 at op: it touches y while c is still under way",
    ),
    "IR017 output": (
        HEAD + '\ncollective c on cpu call "all_reduce" (x) writes (y) group "0"\n',
        "IR017 at y: output y is returned while c is still under way",
    ),
    "IR005 hint": (
        "treadle 1\nprogram p\ninputs x\n\nsize n in 1.. hint 64\n\nbuffer x : f32[n] on cpu\n"
        "buffer v : f32[32] on cpu view of x\n",
        "IR005 at v: a view of 128 bytes into the 4*n bytes of x",
    ),
    "IR019 launch": (
        HEAD
        + "\nforeach f on cpu {"
        + COPY
        + COPY.replace("copy", "more").replace("x[i]", "y[i]").replace("store y", "store x")
        + "}\n",
        "IR019 at f: copy touches x, which more writes in the same launch",
    ),
    "IR019": (
        HEAD + COPY + "\nfused f on cpu {\n}\n",
        "IR019 at f: a group needs at least one member",
    ),
    "IR019 device": (
        HEAD + "\nfused f on cuda:0 {" + COPY.replace("\n", "\n  ") + "\n}\n",
        "IR019 at f: member copy is on cpu, the group on cuda:0",
    ),
    "IR019 nesting": (
        HEAD + "\nfused f on cpu {\n  foreach g on cpu {" + COPY + "  }\n}\n",
        "IR019 at f: a Fused group may not hold a Foreach group",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_rule_is_reported_with_its_code_and_place(case: str) -> None:
    text, message = CASES[case]
    assert str(violations(parse_program(text))[0]) == message
    assert case.split()[0] == message.split()[0]


def test_a_sound_program_has_no_violations() -> None:
    program = parse_program(HEAD + COPY)
    assert violations(program) == []
    assert verify(program) is program


def hand_made(*stmts: Stmt, reduce: Domain | None = None) -> Program:
    """Programs that the text form cannot even say."""
    program = parse_program(HEAD + COPY)
    made = Body(Domain.of(i=8), reduce or Domain(), stmts)
    return Program("p", program.buffers, (Loop(name="op", body=made),), ("x",), ("y",))


LOAD = Stmt("load", (), ("x", loop("i"), False))


def store(value: int) -> Stmt:
    return Stmt("store", (value,), ("y", loop("i"), "plain", False))


@pytest.mark.parametrize(
    "stmts, message",
    [
        ((LOAD, Stmt("frobnicate", (0,)), store(1)), "unknown operation 'frobnicate'"),
        ((LOAD, Stmt("add", (0,)), store(1)), "%1 = add takes 2 operands, not 1"),
        (
            (LOAD, Stmt("neg", (1,)), store(1)),
            "%1 = neg uses %1, which is not defined before it in view",
        ),
        (
            (Stmt("load", (), ("x", loop("i"))), store(0)),
            "%0 = load has 2 attributes; it takes buffer, index, unproven",
        ),
        (
            (LOAD, Stmt("store", (0,), ("y", loop("i"), "twice", False))),
            "unknown store mode 'twice'",
        ),
        ((LOAD, Stmt("yield", (0,)), store(0)), "yield may stand only in a region"),
        (
            (LOAD, Stmt("neg", (0,), (), (Stmt("yield", (0,)),)), store(1)),
            "%1 = neg has no use for a region",
        ),
        (
            (LOAD, Stmt("isnan", (0,)), Stmt("masked", (1,), (None,)), store(2)),
            "%2 = masked needs a region",
        ),
        (
            (
                LOAD,
                Stmt("isnan", (0,)),
                Stmt("masked", (1,), (None,), (store(0), Stmt("yield", (0,)))),
                store(2),
            ),
            "store may not stand in a region",
        ),
        (
            (LOAD, Stmt("isnan", (0,)), Stmt("masked", (1,), (None,), (LOAD,)), store(2)),
            "yield must be the last statement of the region of masked",
        ),
        (
            (
                LOAD,
                Stmt("isnan", (0,)),
                Stmt("masked", (1,), (None,), (LOAD, Stmt("yield", (3,)))),
                store(3),
            ),
            "store uses %3, which is not defined before it in view",
        ),
    ],
)
def test_a_malformed_body_is_reported_as_ir009(stmts: tuple[Stmt, ...], message: str) -> None:
    assert f"IR009 at op: {message}" in [str(v) for v in violations(hand_made(*stmts))]


@pytest.mark.parametrize(
    "stmts, message",
    [
        (
            (Stmt("load", (), ("x", loop("k"), False)), store(0)),
            "IR011 at op: %0: k in k is neither a loop nor a size",
        ),
        (
            (LOAD, Stmt("load", (), ("x", value_symbol(0), True)), store(1)),
            "IR011 at op: %1: %0 in %0 is no indirect value in view",
        ),
    ],
)
def test_an_index_of_unknown_names_is_reported(stmts: tuple[Stmt, ...], message: str) -> None:
    assert [str(v) for v in violations(hand_made(*stmts))] == [message]


def test_an_undeclared_size_is_reported() -> None:
    program = parse_program(
        HEAD.replace("\nbuffer x", "\nsize s in 1..\n\nbuffer x")
        + "buffer z : f32[s] on cpu\n"
        + COPY
    )
    bare = Program(program.name, program.buffers, program.ops, program.inputs, program.outputs)
    assert [str(v) for v in violations(bare)] == [
        "IR007 at z: its layout uses the undeclared size s"
    ]


def test_a_call_may_not_be_given_an_undeclared_size() -> None:
    text = HEAD.replace("\nbuffer x", "\nsize s in 1..\n\nbuffer x")
    program = parse_program(text + 'extern e on cpu call "f" (x, [{2*s}]) writes (y)\n')
    assert violations(program) == []
    bare = Program(program.name, program.buffers, program.ops, program.inputs, program.outputs)
    assert [str(v) for v in violations(bare)] == ["IR007 at e: it is given the undeclared size s"]


def test_groups_are_refused_before_grouping_only() -> None:
    program = parse_program(HEAD + "\nfused f on cpu {" + COPY + "}\n")
    assert violations(program, Stage.GROUPED) == []
    assert [str(v) for v in violations(program, Stage.LOOPS)] == [
        "IR018 at f: a Fused group is not allowed before grouping"
    ]


def test_verify_raises_with_every_violation() -> None:
    with pytest.raises(SpecError) as e:
        verify(parse_program(CASES["IR015"][0]))
    assert e.value.code == "IR015"
    assert "program broken breaks the rules of stage grouped" in e.value.render()
    assert "treadle explain IR015" in e.value.render()


def test_unproven_and_masked_accesses_are_exempt_from_bounds() -> None:
    text = HEAD + body(
        "%0 = load x[i + 1] unproven",
        "%1 = isnan %0",
        "%2 = masked %1 else 0.0 {",
        "  %3 = load x[i - 1]",
        "  yield %3",
        "}",
        "store y[i] = %2",
    )
    assert violations(parse_program(text)) == []


def test_what_was_found_sound_is_not_looked_at_again_until_its_buffers_change() -> None:
    program = verify(parse_program(HEAD + COPY))
    smaller = parse_program(HEAD.replace("x : f32[8]", "x : f32[4]") + COPY)
    mixed = Program("p", smaller.buffers, program.ops, ("x",), ("y",))
    assert [v.code for v in violations(mixed)] == ["IR012"]


def test_every_code_of_the_verifier_is_broken_by_a_test() -> None:
    here = {c.split()[0] for c in CASES} | {"IR007", "IR009", "IR011", "IR018"}
    assert here == {c for c in load_codes() if c.startswith("IR")}


@pytest.mark.parametrize("pair", [("2*i", "2*i + 1"), ("8*i", "8*i + 4"), ("i", "i + 8")])
def test_stores_to_places_that_never_meet_are_no_race(pair: tuple[str, str]) -> None:
    stores = [f"store y[{index}] = %0" for index in pair]
    text = HEAD.replace("y : f32[8]", "y : f32[64]") + body("%0 = load x[i]", *stores)
    assert violations(parse_program(text)) == []
