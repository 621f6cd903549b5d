"""A kernel as one C function: parameters, pointers, the bodies one after the other, clean-up.

    static int k0_softmax(void *const restrict a0, void *const restrict a1, const int64_t n_n,
                          int64_t *const error)

Parameters are storages (bytes) and run-time sizes; the result is 0, or 1 after a failure that
`error` describes. A pointer is `restrict` if what it leads to is changed through no other one: all
are but those of storages that a plan may put into one memory, which the parameters tell.
"""

from __future__ import annotations

from treadle.codegen.c.block import CodeBlock, Loops
from treadle.codegen.c.body import BodyWriter, Frame
from treadle.codegen.c.index import IndexWriter
from treadle.codegen.c.scheduled import ScheduledWriter
from treadle.codegen.c.sites import Sites
from treadle.codegen.c.streams import STREAM
from treadle.codegen.c.types import STORED
from treadle.codegen.host import KernelPlan, KernelSource
from treadle.codegen.names import Names
from treadle.index import Symbol
from treadle.ir.loop_schedule import plan_loops
from treadle.ir.parameters import unshared
from treadle.ir.program import Nest, Program
from treadle.ir.spec_facts import facts_of

PART = "void *const *given, const int64_t *sizes, int64_t *error, int64_t first, int64_t last"
"""What the function of a part is given."""


def write_kernel(program: Program, plan: KernelPlan, sites: Sites) -> KernelSource:
    """The C function of one kernel."""
    frame = Frame(program, Names(), sites)
    inner = CodeBlock()
    counts = []
    functions: list[str] = []
    scratch: list[str] = []
    for nest in plan.nests:
        operation = "+".join(nest.runs)
        comment = f"/* {_comment(operation)} */"
        own, its, block = frame, frame, inner
        in_parts = bool(nest.schedule) and plan_loops(nest.body, nest.schedule).threads is not None
        if in_parts:
            # A function of its own, that is called with a range of the outermost loop.
            own, block = Frame(program, Names(), sites), CodeBlock()
        if nest.schedule:
            writer: BodyWriter = ScheduledWriter(nest, operation, own, block.open(comment))
        else:
            writer = BodyWriter(operation, nest.body, own, block.open(comment))
        writer.write()
        counts.append(len(writer.nests.passes))
        if in_parts:
            name = f"{plan.name}_part{len(functions)}"
            functions.append("\n".join(_function(program, plan, own, block, name)) + "\n")
            call_in_parts(nest, plan, its, inner.open(comment), name)
            frame.helpers |= own.helpers | {"threads"}
            scratch += [what for _, _, what in own.scratch]
    functions.append("\n".join(_function(program, plan, frame, inner)) + "\n")
    text = "\n".join(functions)
    return KernelSource(
        name=plan.name,
        text=text,
        args=(*plan.storages, *[s.name for s in plan.sizes]),
        facts={
            "shape": plan.shape,
            "operations": tuple(n for nest in plan.nests for n in nest.runs),
            "loop_nests": len(plan.nests),
            "passes": tuple(counts),
            "scratch": (*[what for _, _, what in frame.scratch], *scratch),
            "helpers": tuple(sorted(frame.helpers)),
        },
    )


def _function(
    program: Program, plan: KernelPlan, frame: Frame, inner: CodeBlock, part: str = ""
) -> list[str]:
    """The text of a function: a whole kernel, or a part of one that is given a range."""
    block = CodeBlock(f"static int {plan.name}({', '.join(_parameters(plan))})")
    if part:
        block = CodeBlock(f"static int {part}({PART})")
        block.add(*[f"void *const a{k} = given[{k}];" for k in range(len(plan.storages))])
        sizes = [f"const int64_t {size_name(s)} = sizes[{k}];" for k, s in enumerate(plan.sizes)]
        block.add(*sizes, "(void)sizes;")
    arguments = {storage: f"a{k}" for k, storage in enumerate(plan.storages)}
    used = {program.storage_of(buffer) for buffer in frame.buffers}
    for buffer, pointer in frame.buffers.items():
        kind = STORED[program.by_name[buffer].dtype]
        argument = arguments[program.storage_of(buffer)]
        block.add(f"{kind} *const {pointer} = ({kind} *){argument};")
    for storage, argument in arguments.items():
        if storage not in used:
            block.add(f"(void){argument};")
    for s in plan.sizes:
        block.add(f"(void){size_name(s)};")
    for name, kind, _ in frame.scratch:
        block.add(f"{kind} *{name} = NULL;")
    block.add("int status = 0;" if frame.can_fail else "(void)error;")
    block.parts.append(inner)
    if STREAM in frame.helpers:
        block.add("TR_ARRIVED;")
    if frame.can_fail:
        block.add("done:")
        block.add(*[f"free({name});" for name, _, _ in frame.scratch])
    block.add("return status;" if frame.can_fail else "return 0;")
    return list(block.lines())


def call_in_parts(nest: Nest, plan: KernelPlan, frame: Frame, block: CodeBlock, part: str) -> None:
    """Write the call that cuts a nest's outermost loop into parts for threads."""
    loops = plan_loops(nest.body, nest.schedule)
    axis, index = (
        loops.threads,
        IndexWriter(Loops(block), frame.names, facts_of(nest.body), lambda s: size_name(s)),
    )
    assert axis is not None, "a loop is bound to threads"
    points: list[str] = []
    blocks = ""
    for v, n in nest.body.space.items():
        if v is not axis.loop:
            points.append(f"(double){index.write(n)}")
            continue
        blocks = index.write(n)
        if axis.size:
            points.append(str(axis.size))
            blocks = f"({blocks} + {axis.size - 1}) / {axis.size}"
    cost = " * ".join([f"{loops.knob('picoseconds', 0) / 1000!r}", *points])
    given = ", ".join([f"a{k}" for k in range(len(plan.storages))])
    sizes = ", ".join([*[size_name(s) for s in plan.sizes], "0"])
    block.add(f"void *const given[] = {{{given}}};", f"const int64_t sizes[] = {{{sizes}}};")
    call = f"tr_in_parts({part}, given, sizes, error, {blocks}, {cost})"
    block.add(f"if ({call}) {{ status = 1; goto done; }}")
    frame.can_fail = True


def _parameters(plan: KernelPlan) -> list[str]:
    alone = unshared(plan.parameters)
    words = ["const restrict" if s in alone else "const" for s in plan.storages]
    storages = [f"void *{word} a{k}" for k, word in enumerate(words)]
    return [
        *storages,
        *[f"const int64_t {size_name(s)}" for s in plan.sizes],
        "int64_t *const error",
    ]


def size_name(s: Symbol) -> str:
    """The C name of a run-time size."""
    return f"n_{s.name}"


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text.replace("*/", "* /"))
