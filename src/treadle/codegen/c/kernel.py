"""A kernel as one C function: parameters, pointers, the bodies one after the other, clean-up.

    static int k0_softmax(void *const restrict a0, void *const restrict a1, const int64_t n_n,
                          int64_t *const error)

Parameters are storages (bytes) and run-time sizes; the result is 0, or 1 after a failure that
`error` describes. A pointer is `restrict` if what it leads to is changed through no other one: all
are but those of storages that a plan may put into one memory, which the parameters tell.
"""

from __future__ import annotations

from treadle.codegen.c.block import CodeBlock
from treadle.codegen.c.body import BodyWriter, Frame
from treadle.codegen.c.scheduled import ScheduledWriter
from treadle.codegen.c.sites import Sites
from treadle.codegen.c.types import STORED
from treadle.codegen.host import KernelPlan, KernelSource
from treadle.codegen.names import Names
from treadle.index import Symbol
from treadle.ir.parameters import unshared
from treadle.ir.program import Program


def write_kernel(program: Program, plan: KernelPlan, sites: Sites) -> KernelSource:
    """The C function of one kernel."""
    frame = Frame(program, Names(), sites)
    inner = CodeBlock()
    counts = []
    for nest in plan.nests:
        operation = "+".join(nest.runs)
        own = inner.open(f"/* {_comment(operation)} */")
        if nest.schedule:
            writer: BodyWriter = ScheduledWriter(nest, operation, frame, own)
        else:
            writer = BodyWriter(operation, nest.body, frame, own)
        writer.write()
        counts.append(len(writer.nests.passes))
    text = "\n".join(_function(program, plan, frame, inner)) + "\n"
    return KernelSource(
        name=plan.name,
        text=text,
        args=(*plan.storages, *[s.name for s in plan.sizes]),
        facts={
            "shape": plan.shape,
            "operations": tuple(n for nest in plan.nests for n in nest.runs),
            "loop_nests": len(plan.nests),
            "passes": tuple(counts),
            "scratch": tuple(what for _, _, what in frame.scratch),
            "helpers": tuple(sorted(frame.helpers)),
        },
    )


def _function(program: Program, plan: KernelPlan, frame: Frame, inner: CodeBlock) -> list[str]:
    block = CodeBlock(f"static int {plan.name}({', '.join(_parameters(plan))})")
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
    if frame.can_fail:
        block.add("done:")
        block.add(*[f"free({name});" for name, _, _ in frame.scratch])
    block.add("return status;" if frame.can_fail else "return 0;")
    return list(block.lines())


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
