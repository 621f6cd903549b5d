"""The whole compiler, small: what Treadle does, in one file that can be read in an evening.

    python docs/from_scratch.py

A program of loops over rows and columns goes through every stage that the real one has:

    1  Program      buffers, and loops that each fill one of them           (treadle: ir/)
    2  meaning      an interpreter in numpy, which every later stage must agree with
    3  dependences  who must follow whom                                    (analysis/deps.py)
    4  fusion       which loops are one kernel, with a reason for every no  (schedule/)
    5  order        the order that holds the fewest bytes at once           (schedule/ordering/)
    6  memory       who lies where in one arena, and how good that is       (memory/)
    7  C            the kernels as text, compiled by gcc, called by ctypes  (codegen/, runtime/)

What is left out is what makes the real one long: more than two dimensions, types other than float,
views, calls, run-time sizes, GPUs, exact rules for rounding, files of other compilers.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# ------------------------------------------------------------------------------- 1. programs
#
# A value is an expression tree. Its leaves are numbers and loads; a load says which buffer and at
# which index: ("i", "j") is the element of this row and column, ("i",) that of this row of a
# column vector, ("j",) that of this column of a row vector.


def binary(kind: str) -> Callable[[Value, Value | float], Value]:
    """What `x + y` means for values: a node with both below it; a number is a value, too."""

    def made(x: Value, y: Value | float) -> Value:
        return Value(kind, (x, y if isinstance(y, Value) else Value("number", (), float(y))))

    return made


@dataclass(frozen=True)
class Value:
    """A node of an expression: `Value("add", (x, y))`, `Value("load", (), ("x", ("i", "j")))`."""

    kind: str
    args: tuple[Value, ...] = ()
    data: object = None

    __add__, __sub__, __mul__, __truediv__ = map(binary, ("add", "sub", "mul", "div"))

    @property
    def loads(self) -> list[tuple[str, tuple[str, ...]]]:
        """Every load in the expression, from left to right."""
        return [self.data] if self.kind == "load" else [x for arg in self.args for x in arg.loads]


def load(buffer: str, *index: str) -> Value:
    """An element of a buffer."""
    return Value("load", (), (buffer, index))


@dataclass(frozen=True)
class Loop:
    """For every row i (and column j): `target[index] = value`, or the sum or maximum over j of it.

    A loop that reduces writes one element a row, so its index is ("i",).
    """

    name: str
    target: str
    index: tuple[str, ...]
    value: Value
    reduce: str | None = None  # "sum" or "max", over j

    @property
    def reads(self) -> set[str]:
        """The buffers that it loads from."""
        return {buffer for buffer, _ in self.value.loads}


@dataclass(frozen=True)
class Program:
    """Buffers with their shapes, loops in order, and which buffers belong to the caller."""

    rows: int
    columns: int
    shapes: dict[str, tuple[str, ...]]  # ("i", "j"), ("i",) or ("j",)
    loops: tuple[Loop, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def shape(self, buffer: str) -> list[int]:
        """How many rows and columns a buffer has."""
        return [self.rows if axis == "i" else self.columns for axis in self.shapes[buffer]]

    def bytes(self, buffer: str) -> int:
        """How many bytes it takes."""
        return 4 * int(np.prod(self.shape(buffer)))


# -------------------------------------------------------------------------------- 2. meaning
#
# The interpreter is the definition: slow, obvious, and everything else is compared with it.

NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "exp": np.exp}
NUMPY["rsqrt"] = lambda x: 1.0 / np.sqrt(x)


def interpret(program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every buffer after the program ran; inputs are not changed, their copies are."""
    memory = {name: array.astype(np.float64) for name, array in inputs.items()}

    def at(value: Value) -> np.ndarray:
        if value.kind == "number":
            return np.float64(value.data)
        if value.kind == "load":
            buffer, index = value.data
            array = memory[buffer]
            # Spread over rows and columns: a column vector stands upright, a row vector lies.
            return array[:, None] if index == ("i",) else array
        return NUMPY[value.kind](*[at(arg) for arg in value.args])

    for loop in program.loops:
        found = np.broadcast_to(at(loop.value), (program.rows, program.columns))
        if loop.reduce:
            found = found.sum(axis=1) if loop.reduce == "sum" else found.max(axis=1)
        elif loop.index == ("i",):
            found = found[:, 0]
        memory[loop.target] = np.array(found)
    return memory


# ---------------------------------------------------------------------------- 3. dependences
#
# b must follow a if one of them writes what the other one touches. Only "reads what it wrote"
# carries data; the other two keep a buffer from being overwritten too early or too late.


def dependences(loops: tuple[Loop, ...]) -> set[tuple[int, int]]:
    """(a, b): loop number b must run after loop number a."""
    return {
        (a, b)
        for b, second in enumerate(loops)
        for a, first in enumerate(loops[:b])
        if first.target in second.reads  # read after write
        or second.target in first.reads  # write after read
        or second.target == first.target  # write after write
    }


# --------------------------------------------------------------------------------- 4. fusion
#
# A kernel is one walk over the rows: for each row, its loops one after the other. What one loop
# writes in a row the next can read in the same row, from a scratch row that stays in the cache.
# Fusion takes the pair that saves most traffic, asks every rule, and goes on until none is left.


@dataclass(frozen=True)
class Verdict:
    """An answer with its reason: a bare no helps nobody who asks why."""

    ok: bool
    code: str = "YES"
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """Loops that run as one, in order, by their numbers in the program."""

    loops: tuple[int, ...]


def touched(program: Program, kernel: Kernel) -> set[str]:
    """Every buffer that a kernel reads or writes."""
    loops = [program.loops[k] for k in kernel.loops]
    return {name for loop in loops for name in (loop.target, *loop.reads)}


def internal(program: Program, kernel: Kernel) -> set[str]:
    """Buffers that are made and used up inside a kernel: they need no memory."""
    made = {program.loops[k].target for k in kernel.loops}
    rest = Kernel(tuple(k for k in range(len(program.loops)) if k not in kernel.loops))
    return made - touched(program, rest) - {*program.inputs, *program.outputs}


def traffic(program: Program, kernel: Kernel) -> int:
    """Bytes that a kernel moves: what it touches, each buffer once a way, internal ones not."""
    read: set[str] = set()
    made: set[str] = set()
    for loop in [program.loops[k] for k in kernel.loops]:
        read |= loop.reads - made  # what was made here is still at hand
        made.add(loop.target)
    inside = internal(program, kernel)
    return sum(program.bytes(name) for name in (*(read - inside), *(made - inside)))


def reads_its_own_row(program: Program, one: Kernel, other: Kernel) -> Verdict:
    """What the one writes and the other reads must be read in the row that wrote it."""
    for a, b in ((one, other), (other, one)):
        written = {program.loops[k].target for k in a.loops}
        for k in b.loops:
            for name, index in program.loops[k].value.loads:
                if name in written and index[0] != "i":
                    return Verdict(False, "ACROSS ROWS", {"buffer": name, "index": index})
    return Verdict(True)


def closes_no_cycle(program: Program, one: Kernel, other: Kernel, kernels: list[Kernel]) -> Verdict:
    """Nothing outside may have to run between the two."""
    mine = set(one.loops) | set(other.loops)
    paths = reachable(program)
    after = {b for a, b in paths if a in mine} - mine
    before = {a for a, b in paths if b in mine} - mine
    # A kernel is all or nothing: who must follow a part of it must follow all of it.
    for kernel in kernels:
        members = set(kernel.loops)
        if members & after and members & before:
            return Verdict(False, "CYCLE", {"through": [program.loops[k].name for k in members]})
    return Verdict(True)


def reachable(program: Program) -> set[tuple[int, int]]:
    """The dependences, and what follows from following."""
    pairs = dependences(program.loops)
    for middle in range(len(program.loops)):  # Warshall: paths through one more loop at a time
        before = [a for a, b in pairs if b == middle]
        after = [b for a, b in pairs if a == middle]
        pairs |= {(a, b) for a in before for b in after}
    return pairs


def fuse(program: Program) -> tuple[list[Kernel], list[tuple[str, str, Verdict]]]:
    """The kernels, and every decision on the way."""
    kernels = [Kernel((k,)) for k in range(len(program.loops))]
    journal = []
    refused: set[tuple[Kernel, Kernel]] = set()
    while True:
        pairs = []
        for number, one in enumerate(kernels):
            for other in kernels[number + 1 :]:
                if touched(program, one) & touched(program, other) and (one, other) not in refused:
                    joined = Kernel(tuple(sorted((*one.loops, *other.loops))))
                    apart = traffic(program, one) + traffic(program, other)
                    pairs.append((apart - traffic(program, joined), one, other, joined))
        if not pairs:
            return kernels, journal
        saved, one, other, joined = max(pairs, key=lambda row: (row[0], [-k for k in row[3].loops]))
        rest = [k for k in kernels if k not in (one, other)]
        answers = (
            reads_its_own_row(program, one, other),
            closes_no_cycle(program, one, other, rest),
            Verdict(saved > 0, "YES" if saved > 0 else "NOTHING SAVED", {"bytes": saved}),
        )
        # The first no counts; the last answer says what a yes is worth.
        verdict = next((answer for answer in answers if not answer.ok), answers[-1])
        if verdict.ok:
            kernels = sorted([*rest, joined], key=lambda k: k.loops)
        else:
            refused.add((one, other))
        journal.append((name_of(program, one), name_of(program, other), verdict))


def name_of(program: Program, kernel: Kernel) -> str:
    """The names of its loops."""
    return "+".join(program.loops[k].name for k in kernel.loops)


# ---------------------------------------------------------------------------------- 5. order
#
# Among the kernels whose predecessors ran, take the one after which the fewest bytes are live.
# The real search looks further ahead; this already beats the order of the text on most programs.


def order(program: Program, kernels: list[Kernel]) -> list[Kernel]:
    """The kernels in an order that keeps every dependence."""
    pairs = dependences(program.loops)
    left, found = list(kernels), []
    while left:
        waiting = {k for kernel in left for k in kernel.loops}
        ready = [
            kernel
            for kernel in left
            if not any(b in kernel.loops and a in waiting - {*kernel.loops} for a, b in pairs)
        ]
        found.append(min(ready, key=lambda k: (live_after(program, [*found, k], left), k.loops)))
        left.remove(found[-1])
    return found


def live_after(program: Program, ran: list[Kernel], all_left: list[Kernel]) -> int:
    """Bytes of temporaries that somebody still needs after these kernels."""
    later = [k for k in all_left if k not in ran]
    needed = {name for kernel in later for name in touched(program, kernel)}
    made = {program.loops[k].target for kernel in ran for k in kernel.loops}
    inside = {name for kernel in ran for name in internal(program, kernel)}
    return sum(program.bytes(n) for n in (made & needed) - inside - set(program.outputs))


# --------------------------------------------------------------------------------- 6. memory
#
# Each temporary is a rectangle: from the kernel that makes it to the last that reads it, as high
# as its bytes. Placing them without overlap is the question; the most bytes live at once is a
# height that no answer can beat, so it says how good an answer is.


@dataclass(frozen=True)
class Block:
    """A temporary: who, from which kernel to which (both included), how many bytes."""

    name: str
    first: int
    last: int
    size: int


def lives(program: Program, kernels: list[Kernel]) -> list[Block]:
    """The temporaries that need memory."""
    found = []
    own = set(program.inputs) | set(program.outputs)
    inside = {name for kernel in kernels for name in internal(program, kernel)}
    for name in program.shapes:
        steps = [k for k, kernel in enumerate(kernels) if name in touched(program, kernel)]
        if steps and name not in own | inside:
            found.append(Block(name, steps[0], steps[-1], program.bytes(name)))
    return found


def lower_bound(blocks: list[Block]) -> int:
    """The most bytes that are live at once: no plan is lower."""
    steps = range(max([b.last for b in blocks], default=-1) + 1)
    return max([sum(b.size for b in blocks if b.first <= s <= b.last) for s in steps], default=0)


def place(blocks: list[Block]) -> dict[str, int]:
    """Offsets, the largest first, each as low as it fits between those it lives with."""
    offsets: dict[str, int] = {}
    placed: list[Block] = []
    for block in sorted(blocks, key=lambda b: (-b.size, b.first, b.name)):
        beside = [b for b in placed if b.first <= block.last and block.first <= b.last]
        taken = sorted((offsets[b.name], offsets[b.name] + b.size) for b in beside)
        at = 0
        for start, end in taken:
            if start - at >= block.size:
                break
            at = max(at, end)
        offsets[block.name] = at
        placed.append(block)
    return offsets


def check_plan(blocks: list[Block], offsets: dict[str, int]) -> None:
    """No two blocks that live together share a byte."""
    for k, a in enumerate(blocks):
        for b in blocks[k + 1 :]:
            if a.first <= b.last and b.first <= a.last:
                x, y = offsets[a.name], offsets[b.name]
                assert x + a.size <= y or y + b.size <= x, f"{a.name} and {b.name} overlap"


# -------------------------------------------------------------------------------------- 7. C
#
# A kernel is a function with one loop over the rows. What is internal to it lives in a row of
# scratch on the stack. One entry point runs all kernels, given the buffers of the caller and the
# arena.

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
FUNCTIONS = {"exp": "expf({})", "rsqrt": "(1.0f / sqrtf({}))"}
START = {"sum": "0.0f", "max": "-INFINITY"}
JOIN = {"sum": "acc += {0};", "max": "acc = {0} > acc ? {0} : acc;"}


def element(program: Program, name: str, index: tuple[str, ...], inside: set[str]) -> str:
    """The C of one element; what is internal has only this row."""
    axes = [axis for axis in index if axis == "j" or name not in inside]
    if not axes:
        return f"{name}[0]"
    return f"{name}[i * {program.columns} + j]" if len(axes) == 2 else f"{name}[{axes[0]}]"


def expression(program: Program, value: Value, inside: set[str]) -> str:
    """The C of a value."""
    if value.kind == "number":
        return f"{value.data!r}f"
    if value.kind == "load":
        return element(program, *value.data, inside)
    args = [expression(program, arg, inside) for arg in value.args]
    if value.kind in OPERATORS:
        return f"({args[0]} {OPERATORS[value.kind]} {args[1]})"
    return FUNCTIONS[value.kind].format(*args)


def kernel_text(program: Program, number: int, kernel: Kernel) -> str:
    """One kernel as a C function of all its buffers."""
    inside = internal(program, kernel)
    outside = sorted(touched(program, kernel) - inside)
    params = ", ".join(f"float *{name}" for name in outside)
    lines = [f"/* {name_of(program, kernel)} */", f"static void k{number}({params}) {{"]
    lines.append(f"  for (long i = 0; i < {program.rows}; ++i) {{")
    for name in sorted(inside):
        long = program.columns if "j" in program.shapes[name] else 1
        lines.append(f"    float {name}[{long}];")
    for k in kernel.loops:
        loop = program.loops[k]
        value = expression(program, loop.value, inside)
        target = element(program, loop.target, loop.index, inside)
        walk = f"for (long j = 0; j < {program.columns}; ++j)"
        if loop.reduce:
            joined = JOIN[loop.reduce].format("v")
            lines.append(f"    {{ float acc = {START[loop.reduce]};")
            lines.append(f"      {walk} {{ float v = {value}; {joined} }}")
            lines.append(f"      {target} = acc; }}")
        elif "j" in loop.index:
            lines.append(f"    {walk} {target} = {value};")
        else:
            lines.append(f"    {target} = {value};")
    return "\n".join([*lines, "  }", "}"])


def unit_text(program: Program, kernels: list[Kernel], offsets: dict[str, int]) -> str:
    """The whole program: its kernels and the entry point that runs them."""
    own = [*program.inputs, *[n for n in program.outputs if n not in program.inputs]]
    place_of = {name: f"(float *)buffers[{k}]" for k, name in enumerate(own)}
    place_of |= {name: f"(float *)(arena + {offset})" for name, offset in offsets.items()}
    lines = ["#include <math.h>", ""]
    calls = []
    for number, kernel in enumerate(kernels):
        lines += [kernel_text(program, number, kernel), ""]
        outside = sorted(touched(program, kernel) - internal(program, kernel))
        calls.append(f"  k{number}({', '.join(place_of[name] for name in outside)});")
    return "\n".join([*lines, "void run(void **buffers, char *arena) {", *calls, "}", ""])


def compile_c(text: str) -> ctypes.CDLL:
    """The text as a loaded library."""
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    assert compiler, "no C compiler was found"
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    with tempfile.TemporaryDirectory() as folder:
        source, library = os.path.join(folder, "unit.c"), os.path.join(folder, "unit.so")
        with open(source, "w") as file:
            file.write(text)
        subprocess.run([compiler, *flags, source, "-o", library, "-lm"], check=True)
        return ctypes.CDLL(library)  # it stays mapped when its file is gone


# ------------------------------------------------------------------------------ all together


@dataclass(frozen=True)
class Compiled:
    """A program that can be called, and everything that was decided about it."""

    program: Program
    kernels: list[Kernel]
    journal: list[tuple[str, str, Verdict]]
    blocks: list[Block]
    offsets: dict[str, int]
    text: str
    library: ctypes.CDLL

    @property
    def arena_bytes(self) -> int:
        """The height of the plan."""
        return max([self.offsets[b.name] + b.size for b in self.blocks], default=0)

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        p = self.program
        arrays = {n: np.array(inputs[n], np.float32) for n in p.inputs}
        arrays |= {n: np.empty(p.shape(n), np.float32) for n in p.outputs if n not in arrays}
        pointers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays.values()])
        arena = np.empty(max(1, self.arena_bytes), np.uint8)
        self.library.run(pointers, ctypes.c_void_p(arena.ctypes.data))
        return {name: arrays[name] for name in p.outputs}


def compile_program(program: Program) -> Compiled:
    """Every stage, one after the other."""
    kernels, journal = fuse(program)
    kernels = order(program, kernels)
    blocks = lives(program, kernels)
    offsets = place(blocks)
    check_plan(blocks, offsets)
    text = unit_text(program, kernels, offsets)
    return Compiled(program, kernels, journal, blocks, offsets, text, compile_c(text))


def example(rows: int = 64, columns: int = 256) -> Program:
    """RMS norm, softmax, how far each row is from the mean of all columns, an in-place update."""
    x, w, state = load("x", "i", "j"), load("w", "j"), load("state", "i", "j")
    normed, shifted = load("normed", "i", "j"), load("shifted", "i", "j")
    probs, far = load("probs", "i", "j"), load("far", "i", "j")
    loops = (
        Loop("square", "squares", ("i",), x * x, "sum"),
        Loop(
            "scale", "scale", ("i",), Value("rsqrt", (load("squares", "i") * (1 / columns) + 1e-5,))
        ),
        Loop("norm", "normed", ("i", "j"), x * load("scale", "i") * w),
        Loop("top", "highest", ("i",), normed, "max"),
        Loop("shift", "shifted", ("i", "j"), Value("exp", (normed - load("highest", "i"),))),
        Loop("total", "totals", ("i",), shifted, "sum"),
        Loop("divide", "probs", ("i", "j"), shifted / load("totals", "i")),
        # Reads the sums of all rows at every row: this cannot be in the walk that makes them.
        Loop("distance", "far", ("i", "j"), probs - load("totals", "j")),
        Loop("update", "state", ("i", "j"), state + (far - state) * 0.1),
    )
    shapes = {loop.target: loop.index for loop in loops}
    shapes |= {"x": ("i", "j"), "w": ("j",), "state": ("i", "j")}
    return Program(rows, columns, shapes, loops, ("x", "w", "state"), ("probs", "state"))


def main() -> int:
    """Compile the example, show what was decided, and compare with the interpreter."""
    program = example(256, 256)  # square: `totals` is read as a column and as a row
    compiled = compile_program(program)
    before = sum(traffic(program, Kernel((k,))) for k in range(len(program.loops)))
    after = sum(traffic(program, k) for k in compiled.kernels)
    print(f"{len(program.loops)} loops became {len(compiled.kernels)} kernels")
    for one, other, verdict in compiled.journal:
        print(f"  {one} with {other}: {verdict.code} {verdict.facts}")
    print(f"bytes moved: {before:,} -> {after:,}")
    bound = lower_bound(compiled.blocks)
    print(f"arena: {compiled.arena_bytes:,} bytes, no plan is below {bound:,}")
    random = np.random.default_rng(0)
    inputs = {name: random.standard_normal(program.shape(name)) for name in program.inputs}
    wanted, found = interpret(program, inputs), compiled(inputs)
    worst = max(float(np.abs(found[n] - wanted[n]).max()) for n in program.outputs)
    print(f"largest difference to the interpreter: {worst:.1e}")
    return 0 if worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
