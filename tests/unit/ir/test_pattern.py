"""Bodies that differ in the names of their buffers share a pattern; others do not."""

from treadle.ir.body import Body
from treadle.ir.build import ProgramBuilder
from treadle.ir.pattern import named, pattern_of
from treadle.ir.program import Loop


def scaled(source: str, target: str, factor: float = 0.5, size: int = 8) -> Loop:
    b = ProgramBuilder("p")
    x, y = b.input(source, "f32", [size]), b.output(target, "f32", [size])
    with b.loop("k", [size]) as k:
        k.store(y, k.vars, k.load(x, k.vars[0]) * factor)
    (op,) = b.build().ops
    assert isinstance(op, Loop)
    return op


def test_names_make_no_difference_but_are_kept_in_order() -> None:
    one, other = pattern_of(scaled("x", "y")), pattern_of(scaled("y", "x"))
    assert one.pattern is other.pattern
    assert (one.buffers, other.buffers) == (("x", "y"), ("y", "x"))


def test_constants_sizes_and_signs_of_zero_make_a_difference() -> None:
    known = pattern_of(scaled("x", "y")).pattern
    assert pattern_of(scaled("x", "y", 0.25)).pattern is not known
    assert pattern_of(scaled("x", "y", size=4)).pattern is not known
    zero, minus = (pattern_of(scaled("x", "y", f)).pattern for f in (0.0, -0.0))
    assert zero is not minus


def test_one_buffer_twice_is_not_two_buffers() -> None:
    b = ProgramBuilder("p")
    x, z = b.input("x", "f32", [4]), b.input("z", "f32", [4])
    y = b.output("y", "f32", [4, 2])
    for name, other in (("twice", x), ("both", z)):
        with b.loop(name, [4]) as k:
            (i,) = k.vars
            k.store(y, (i, 0 if name == "twice" else 1), k.load(x, i) + k.load(other, i))
    twice, both = (pattern_of(op) for op in b.build().ops if isinstance(op, Loop))
    assert (len(twice.buffers), len(both.buffers)) == (2, 3)


def test_names_put_back_give_the_body_itself() -> None:
    op = scaled("x", "y")
    pattern, buffers = pattern_of(op)
    assert named(pattern.body, buffers) == op.body


def test_a_question_about_a_pattern_is_asked_once() -> None:
    asked = []

    def question(body: Body) -> int:
        asked.append(body)
        return len(body.stmts)

    for op in (scaled("a", "b"), scaled("c", "d")):
        assert pattern_of(op).pattern.derive(question) == len(op.body.stmts)
    assert len(asked) == 1
