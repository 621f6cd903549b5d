"""The exact text of every error of the reference interpreter."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from treadle.core import explain
from treadle.index import loop, size
from treadle.ir.body import Stmt
from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import RunError, from_arrays, run
from treadle.ir.program import Program
from treadle.ir.types import BufferKind, DType

F32 = np.float32
READ_MORE = "\n  read more: treadle explain "


class Bench:
    """Two inputs, an output, and room for one operation."""

    def __init__(self) -> None:
        self.b = ProgramBuilder("bench")
        self.x = self.b.input("x", "f32", [4])
        self.at = self.b.input("at", "i64", [3])
        self.y = self.b.output("y", "f32", [4])

    def run(self, **options: object) -> object:
        inputs = {"x": np.zeros(4, F32), "at": np.array([0, -4, -5])}
        return run(self.b.build(), inputs, **options)  # type: ignore[arg-type]


def copy_program() -> Program:
    b = ProgramBuilder("copy")
    n = b.size("s0", lo=2, hi=64, divisor=2)
    x, y = b.input("x", "f32", [n, 4]), b.output("y", "f32", [n, 4])
    with b.loop("copy", [n, 4]) as k:
        k.store(y, k.vars, k.load(x, *k.vars))
    return b.build()


def copying(
    shape: tuple[int, ...] | None, kind: type = F32, **rest: object
) -> Callable[[], object]:
    given: Mapping[str, np.ndarray] = {} if shape is None else {"x": np.zeros(shape, kind)}
    return lambda: run(copy_program(), {**given, **rest.pop("more", {})}, **rest)  # type: ignore


def unbound_size() -> object:
    b = ProgramBuilder("fill")
    y = b.output("y", "f32", [b.size("s0")])
    with b.loop("fill", y.layout.sizes) as k:
        k.store(y, k.vars, 1.0)
    return run(b.build(), {})


def undeclared_size() -> object:
    bench = Bench()
    bench.b.nop(bench.b.buffer("t", "f32", [size("s9")]))
    return bench.run()


def foreign_loop() -> object:
    bench = Bench()
    with bench.b.loop("odd", [4]) as k:
        k.store(bench.y, k.vars, k.load_at(bench.x, loop("q")))
    return bench.run()


def load_outside() -> object:
    bench = Bench()
    with bench.b.loop("shift", [4]) as k:
        (i,) = k.vars
        k.store(bench.y, (i,), k.load_at(bench.x, i + 2, unproven=True))
    return bench.run()


def store_outside() -> object:
    bench = Bench()
    with bench.b.loop("shift", [2, 2]) as k:
        i, j = k.vars
        k.store_at(bench.y, 2 * i + j - 1, 1.0)
    return bench.run()


def store_outside_without_loops() -> object:
    bench = Bench()
    with bench.b.loop("one", []) as k:
        k.store_at(bench.y, 9, 1.0)
    return bench.run()


def boundaries_outside() -> object:
    bench = Bench()
    with bench.b.loop("buckets", [4]) as k:
        value = k.bucketize(k.load(bench.x, *k.vars), bench.x, size=5)
        k.store(bench.y, k.vars, value)
    return bench.run()


def gather(wrap: bool) -> Callable[[], object]:
    def act() -> object:
        bench = Bench()
        with bench.b.loop("gather", [3]) as k:
            place = k.indirect(k.load(bench.at, *k.vars), 4, wrap=wrap)
            k.store(bench.y, k.vars, k.load(bench.x, place))
        return bench.run()

    return act


def read_early() -> object:
    bench = Bench()
    t = bench.b.buffer("t", "f32", [4])
    with bench.b.loop("early", [4]) as k:
        k.store(bench.y, k.vars, k.load(t, *k.vars))
    return bench.run()


def add_to_nothing() -> object:
    bench = Bench()
    with bench.b.loop("add", [4]) as k:
        k.store(bench.y, k.vars, 1.0, mode="atomic_add")
    return bench.run()


def call(target: str, **externs: object) -> Callable[[], object]:
    def act() -> object:
        bench = Bench()
        bench.b.extern(target, [bench.x, -1], [bench.y], name="call")
        return bench.run(externs=externs.get("externs", {}))

    return act


def failed_assertion() -> object:
    bench = Bench()
    with bench.b.loop("guard", [4]) as k:
        v = k.load(bench.x, *k.vars)
        k.check(v > 0, "x must be positive")
        k.store(bench.y, k.vars, v)
    return bench.run()


def assembly() -> object:
    bench = Bench()
    with bench.b.loop("asm", [4]) as k:
        v = k.load(bench.x, *k.vars)
        k.store(bench.y, k.vars, k.emit("inline_asm", [v], ("mov", "=r,r", DType.F32, True, 1)))
    return bench.run()


def bits_of_another_width() -> object:
    bench = Bench()
    with bench.b.loop("bits", [4]) as k:
        k.store(bench.y, k.vars, k.bitcast(k.load(bench.x, *k.vars), "i64"))
    return bench.run()


def bitwise_floats() -> object:
    bench = Bench()
    with bench.b.loop("bits", [4]) as k:
        k.store(bench.x, k.vars, 1.0, mode="atomic_or")
    return bench.run()


def store_in_a_region() -> object:
    bench = Bench()
    with bench.b.loop("region", [4]) as k:
        v = k.load(bench.x, *k.vars)

        def inner() -> object:
            k.store(bench.y, k.vars, v)
            return v

        k.masked(v > 0, 0.0, inner)  # type: ignore[arg-type]
    return bench.run()


def region_that_looks_around() -> object:
    bench = Bench()
    with bench.b.loop("scan", [], reduce=[4]) as k:
        v = k.load(bench.x, *k.vars)
        k.store(bench.y, k.vars, k.scan_region([v], lambda a, b: [a + v]))
    return bench.run()


def wrong_types() -> object:
    bench = Bench()
    with bench.b.loop("types", [4]) as k:
        v = k.load(bench.x, *k.vars)
        k._blocks[-1].append(Stmt("bitwise_not", (v.number,)))
    return bench.run()


def position_in_nothing() -> object:
    bench = Bench()
    with bench.b.loop("top", [4], reduce=[0]) as k:
        k.store(bench.y, k.vars[:1], k.argmax(k.load(bench.x, k.vars[1])))
    return bench.run()


def take(position: int) -> Callable[[], object]:
    def act() -> object:
        bench = Bench()
        pair = bench.b.token("pair", BufferKind.TUPLE)
        bench.b.extern("mylib.one", [bench.x], [pair])
        bench.b.take(bench.y, pair, position, name="take")
        return bench.run(externs={"mylib.one": from_arrays(lambda x: (x[:2],))})

    return act


def no_such_buffer() -> object:
    return run(copy_program(), {"x": np.zeros((2, 4), F32)}).read("z")


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "an_input_is_missing": (copying(None), "RUN001: no array is given for input 'x'"),
    "an_input_nobody_knows": (
        copying((4, 4), more={"z": np.zeros(1)}),
        "RUN001: 'z' is not an input of the program\n  known inputs: x",
    ),
    "an_input_of_another_type": (
        copying((4, 4), np.float64),
        "RUN001: input 'x' has elements of type f32 (numpy: float32), not float64\n"
        "  inputs are never converted silently",
    ),
    "an_input_of_another_shape": (
        copying((4, 5)),
        "RUN001: input 'x' has shape [4, 4], not [4, 5]\n  it is declared as f32[s0, 4]",
    ),
    "an_input_of_another_rank": (
        copying((4,), sizes={"s0": 4}),
        "RUN001: input 'x' has shape [4, 4], not [4]\n  it is declared as f32[s0, 4]",
    ),
    "a_buffer_nobody_knows": (no_such_buffer, "RUN001: the program has no buffer 'z'"),
    "a_size_outside_of_its_promise": (
        copying((3, 4)),
        "RUN002: size s0 cannot be 3\n  the program promises: size s0 in 2..64 divisor 2",
    ),
    "a_size_with_two_values": (
        copying((4, 4), sizes={"s0": 6}),
        "RUN002: size s0 has two values\n  it is given as 6\n  dimension 0 of input 'x' has 4",
    ),
    "a_size_nobody_knows": (
        copying((4, 4), sizes={"s1": 6}),
        "RUN002: 's1' is not a size of the program\n  known sizes: s0",
    ),
    "a_size_without_a_value": (
        unbound_size,
        "RUN002: size s0 has no value\n  no input has it as a dimension; pass sizes={...}",
    ),
    "a_size_the_program_forgot": (
        undeclared_size,
        "RUN002: buffer 't' needs size s9, which the program does not declare",
    ),
    "a_loop_variable_of_somewhere_else": (
        foreign_loop,
        "RUN002: operation 'odd' uses loop variable q, which has no value",
    ),
    "a_load_outside": (
        load_outside,
        "RUN003: operation 'shift': index 4 leaves the storage of buffer 'x' (4 elements)\n"
        "  statement: load x[i0 + 2] unproven\n  at: i0 = 2",
    ),
    "a_store_outside": (
        store_outside,
        "RUN003: operation 'shift': index -1 leaves the storage of buffer 'y' (4 elements)\n"
        "  statement: store y[2*i0 + i1 - 1] = %0\n  at: i0 = 0, i1 = 0",
    ),
    "a_store_outside_without_loops": (
        store_outside_without_loops,
        "RUN003: operation 'one': index 9 leaves the storage of buffer 'y' (4 elements)\n"
        "  statement: store y[9] = %0\n  at: the only point",
    ),
    "boundaries_outside": (
        boundaries_outside,
        "RUN003: operation 'buckets': index 4 leaves the storage of buffer 'x' (4 elements)\n"
        "  statement: bucketize i64 %0 in x size 5",
    ),
    "an_indirect_index_too_small": (
        gather(wrap=True),
        "RUN004: operation 'gather': index %0 is -5, outside -4..4 of buffer 'x'\n"
        "  statement: indirect %0 size 4 wrap check\n  at: i0 = 2",
    ),
    "an_indirect_index_that_should_wrap": (
        gather(wrap=False),
        "RUN004: operation 'gather': index %0 is -4, outside 0..4 of buffer 'x'\n"
        "  statement: indirect %0 size 4 check\n  at: i0 = 1",
    ),
    "a_buffer_read_early": (
        read_early,
        "RUN005: operation 'early' reads buffer 't', which nothing has written\n"
        "  a buffer is an input, or an earlier operation writes or allocates it",
    ),
    "a_buffer_added_to_early": (
        add_to_nothing,
        "RUN005: operation 'add' reads buffer 'y', which nothing has written\n"
        "  a buffer is an input, or an earlier operation writes or allocates it",
    ),
    "a_call_nobody_knows": (
        call("mylib.softmax"),
        "RUN006: operation 'call' calls 'mylib.softmax', which the reference does not know\n"
        "  supply one: run(program, inputs, externs={'mylib.softmax': function(ctx, op)})",
    ),
    "a_call_spelled_wrong": (
        call("aten.addmn"),
        "RUN006: operation 'call' calls 'aten.addmn', which the reference does not know\n"
        "  supply one: run(program, inputs, externs={'aten.addmn': function(ctx, op)})\n"
        "  did you mean: addmm, baddbmm",
    ),
    "an_assertion": (
        failed_assertion,
        "RUN007: operation 'guard': assertion failed: x must be positive\n"
        '  statement: assert %2 "x must be positive"\n  at: i0 = 0',
    ),
    "assembly": (
        assembly,
        "RUN008: operation 'asm': inline assembly cannot be interpreted\n"
        '  statement: inline_asm f32 (%0) "mov" "=r,r" pack 1 pure',
    ),
    "bits_of_another_width": (
        bits_of_another_width,
        "RUN008: operation 'bits': the bits of f32 cannot be read as i64: widths differ\n"
        "  statement: bitcast i64 %0",
    ),
    "bitwise_atomics_on_floats": (
        bitwise_floats,
        "RUN008: operation 'bits': atomic_or has no meaning for f32\n"
        "  statement: store x[i0] = %0 mode atomic_or",
    ),
    "a_store_in_a_region": (
        store_in_a_region,
        "RUN008: operation 'region': a region cannot store\n  statement: store y[i0] = %0",
    ),
    "a_region_that_looks_around": (
        region_that_looks_around,
        "RUN008: operation 'scan': the region uses a value that varies along the scanned loops\n"
        "  statement: scan region %0",
    ),
    "a_body_of_wrong_types": (
        wrong_types,
        "RUN008: operation 'types': bitwise_not takes an integer type or bool, not f32",
    ),
    "a_position_in_nothing": (
        position_in_nothing,
        "RUN009: operation 'top': argmax over no elements has no answer\n"
        "  statement: reduce argmax %0",
    ),
    "a_result_of_another_shape": (
        call("f", externs={"f": from_arrays(lambda x, n: x.sum())}),
        "RUN010: call 'call' gave buffer 'y' shape []\n  its shape is [4]",
    ),
    "a_result_of_an_unknown_type": (
        call("f", externs={"f": from_arrays(lambda x, n: x.astype(np.complex64))}),
        "RUN010: call 'call' gave buffer 'y' elements of type complex64\n"
        "  Treadle has no such element type",
    ),
    "too_many_results": (
        call("f", externs={"f": from_arrays(lambda x, n: (x, x))}),
        "RUN010: call 'call' gave 2 results for 1 buffers",
    ),
    "a_result_that_is_not_written": (
        call("f", externs={"f": lambda ctx, op: None}),
        "RUN010: call 'call' of 'f' did not write buffer 'y'",
    ),
    "a_result_somewhere_else": (
        call("f", externs={"f": lambda ctx, op: ctx.write("x", ctx.args[0])}),
        "RUN010: call 'call' may not write 'x'\n  it says it writes: y",
    ),
    "an_item_that_is_not_there": (
        take(1),
        "RUN010: operation 'take' takes item 1 of 'pair'\n  it has 1 items",
    ),
    "an_item_of_another_shape": (
        take(0),
        "RUN010: item 0 of 'pair' gave buffer 'y' shape [2]\n  its shape is [4]",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_exactly(name: str) -> None:
    act, text = CASES[name]
    with pytest.raises(RunError) as caught:
        act()
    assert str(caught.value) == text + READ_MORE + text[:6]


@pytest.mark.parametrize(
    "code, case",
    [
        ("RUN001", "an_input_of_another_type"),
        ("RUN002", "a_size_outside_of_its_promise"),
        ("RUN003", "a_load_outside"),
        ("RUN004", "an_indirect_index_too_small"),
        ("RUN005", "a_buffer_read_early"),
        ("RUN006", "a_call_nobody_knows"),
        ("RUN007", "an_assertion"),
        ("RUN008", "assembly"),
        ("RUN009", "a_position_in_nothing"),
        ("RUN010", "a_result_of_another_shape"),
    ],
)
def test_the_page_shows_the_text_that_is_really_printed(code: str, case: str) -> None:
    _, text = CASES[case]
    assert f"```\n{text}{READ_MORE}{code}\n```" in explain(code)
