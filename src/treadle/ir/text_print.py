"""Programs as text. Reading the text back gives an equal program (see `text_parse`).

treadle 1
program demo
inputs x
outputs y

buffer x : f32[128, 256] on cpu
buffer y : f32[128] on cpu

loop total on cpu for i in 128 reduce j in 256 from ("aten.sum") {
  %0 = load x[256*i + j]
  %1 = reduce sum %0
  store y[i] = %1
}
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

from treadle.index import Domain, Expr, Symbol
from treadle.ir.body import Body, Literal, Stmt
from treadle.ir.numerics import EXACT
from treadle.ir.ops import OPS, POINTWISE
from treadle.ir.parameters import KernelParameter
from treadle.ir.program import (
    Arg,
    Call,
    Collective,
    Extern,
    Foreach,
    Fused,
    Group,
    Grouped,
    Kernel,
    Loop,
    MixOrder,
    MultiOutput,
    Nest,
    Nop,
    Operation,
    Program,
    Ref,
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.ranks import show_ranks
from treadle.ir.types import Buffer, BufferKind, row_major_strides

VERSION = 1
RESERVED = frozenset({"true", "false", "none", "nan", "inf"})
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")

KEYWORDS: Mapping[type[Operation], str] = {
    Loop: "loop",
    Extern: "extern",
    Template: "template",
    UserKernel: "kernel",
    Collective: "collective",
    Wait: "wait",
    MultiOutput: "take",
    Nop: "alloc",
    Fused: "fused",
    MixOrder: "mixorder",
    Foreach: "foreach",
    Grouped: "grouped",
    Nest: "nest",
    Kernel: "launch",
}


def show_program(program: Program) -> str:
    """The whole program as text, with a final newline."""
    out = [f"treadle {VERSION}", f"program {show_name(program.name)}"]
    for word in ("inputs", "outputs", "donated"):
        names = getattr(program, word)
        if names:
            out.append(f"{word} {_names(names)}")
    if program.numerics != EXACT:
        out.append(f"numerics {program.numerics}")
    if program.sizes:
        out.append("")
        out.extend(_show_size(s) for s in program.sizes)
    if program.buffers:
        out.append("")
        out.extend(show_buffer(b) for b in program.buffers)
    for op in program.ops:
        out.append("")
        out.extend(_operation_lines(op))
    return "\n".join(out) + "\n"


def show_operation(op: Operation) -> str:
    """One operation as text."""
    return "\n".join(_operation_lines(op))


def show_name(name: str) -> str:
    """A name: bare where that is unambiguous, quoted behind @ where not."""
    if _PLAIN_NAME.fullmatch(name) and name not in RESERVED:
        return name
    return "@" + json.dumps(name)


def show_literal(value: Literal) -> str:
    """A literal: true, 3, 0.5, -inf, nan, "text", none."""
    v = value.value
    if isinstance(v, bool):
        return "true" if v else "false"
    if v is None:
        return "none"
    if isinstance(v, str):
        return json.dumps(v)
    return repr(v)


def _names(names: Iterable[str]) -> str:
    return ", ".join(show_name(n) for n in names)


def _show_size(s: Symbol) -> str:
    low = "" if s.lo is None else str(s.lo)
    high = "" if s.hi is None else str(s.hi)
    text = f"size {s.name} in {low}..{high}"
    if s.divisor != 1:
        text += f" divisor {s.divisor}"
    if s.hint is not None:
        text += f" hint {s.hint}"
    return text


def show_buffer(b: Buffer) -> str:
    """One buffer declaration."""
    text = f"buffer {show_name(b.name)} : "
    if b.kind is not BufferKind.TENSOR:
        text += b.kind.value
    else:
        layout = b.layout
        text += f"{b.dtype}[{', '.join(map(str, layout.sizes))}]"
        if layout.strides != row_major_strides(layout.sizes):
            text += f" stride ({', '.join(map(str, layout.strides))})"
        if layout.offset.value != 0:
            text += f" offset {layout.offset}"
    text += f" on {show_name_device(b.device)}"
    if b.view_of is not None:
        text += f" view of {show_name(b.view_of)}"
    return text


def show_name_device(device: str) -> str:
    """A device as text: cpu, cuda:0."""
    return device if re.fullmatch(r"[A-Za-z_0-9]+(:\d+)?", device) else "@" + json.dumps(device)


# ------------------------------------------------------------------------------- operations


def _operation_lines(op: Operation) -> list[str]:
    head = f"{KEYWORDS[type(op)]} {show_name(op.name)} on {show_name_device(op.device)}"
    if isinstance(op, Loop):
        loops = _show_loops(op.body)
        if isinstance(op, Nest):
            loops += f" runs ({_names(op.runs)})"
            if op.schedule:
                loops += f" schedule ({', '.join([str(s) for s in op.schedule])})"
        return [f"{head}{loops}{_tail(op)} {{", *body_lines(op.body.stmts), "}"]
    if isinstance(op, Group):
        head += f" {op.shape}" if isinstance(op, Kernel) else ""
        inner = [f"  {line}" for m in op.members for line in _operation_lines(m)]
        if isinstance(op, Kernel):
            inner = [*[f"  {_show_parameter(p)}" for p in op.parameters], *inner]
        return [f"{head}{_tail(op)} {{", *inner, "}"]
    if isinstance(op, Call):
        return [head + _show_call(op) + _tail(op)]
    if isinstance(op, Wait):
        return [f"{head} for {show_name(op.buffer)}{_tail(op)}"]
    if isinstance(op, MultiOutput):
        return [f"{head} {show_name(op.target)} = {show_name(op.source)}[{op.position}]{_tail(op)}"]
    assert isinstance(op, Nop)
    return [f"{head} ({_names(op.writes)}){_tail(op)}"]


def _show_parameter(p: KernelParameter) -> str:
    text = f"parameter {show_name(p.storage)} : {p.access.value} {p.contiguity.value}"
    text += f" align {p.alignment}{_flag(p.of_caller, 'of caller')}"
    return text if p.over is None else f"{text} over {show_name(p.over)}"


def _tail(op: Operation) -> str:
    text = f" after ({_names(op.after)})" if op.after else ""
    if op.origins:
        text += f" from ({', '.join(json.dumps(o) for o in op.origins)})"
    return text


def _show_loops(body: Body) -> str:
    text = f" for {_show_domain(body.domain)}" if len(body.domain) else ""
    if len(body.reduce):
        text += f" reduce {_show_domain(body.reduce)}"
    return text


def _show_domain(domain: Domain) -> str:
    return ", ".join(f"{v.name} in {n}" for v, n in domain.items())


def _show_arg(arg: Arg) -> str:
    if isinstance(arg, Ref):
        return show_name(arg.buffer)
    if isinstance(arg, Literal):
        return show_literal(arg)
    if isinstance(arg, Expr):
        return f"{{{arg}}}"
    return f"[{', '.join(_show_arg(a) for a in arg)}]"


def _show_call(op: Call) -> str:
    text = f" call {json.dumps(op.target)} ({', '.join(_show_arg(a) for a in op.args)})"
    if op.writes:
        text += f" writes ({_names(op.writes)})"
    if op.mutates:
        text += f" mutates ({_names(op.mutates)})"
    if op.attrs:
        text += f" with ({', '.join(f'{show_name(k)} = {_show_arg(a)}' for k, a in op.attrs)})"
    if op.has_side_effects:
        text += " effects"
    if isinstance(op, Collective):
        text += f" group {json.dumps(op.group)}"
        text += f" ranks {show_ranks(op.ranks)}" if op.ranks else ""
    if isinstance(op, Template):
        if op.prologue_slots:
            text += f" prologue ({_names(op.prologue_slots)})"
        if not op.has_epilogue_slot:
            text += " closed"
    return text


# ----------------------------------------------------------------------------------- bodies


def body_lines(stmts: tuple[Stmt, ...], indent: str = "  ") -> list[str]:
    """The statements of a body, one line each, numbered as in `Body.walk`."""
    lines: list[str] = []
    _show_block(stmts, 0, indent, lines)
    return lines


def _show_block(stmts: tuple[Stmt, ...], counter: int, indent: str, lines: list[str]) -> int:
    for stmt in stmts:
        text = PRINTERS[stmt.op](stmt)
        if OPS[stmt.op].produces:
            text = f"%{counter} = {text}"
            counter += 1
        if stmt.region:
            lines.append(f"{indent}{text} {{")
            counter = _show_block(stmt.region, counter, indent + "  ", lines)
            lines.append(f"{indent}}}")
        else:
            lines.append(indent + text)
    return counter


def _args(stmt: Stmt) -> str:
    return ", ".join([f"%{a}" for a in stmt.args])


def _flag(on: object, word: str) -> str:
    return f" {word}" if on else ""


def _plain(stmt: Stmt) -> str:
    return f"{stmt.op} {_args(stmt)}"


def _typed(stmt: Stmt) -> str:
    return f"{stmt.op} {stmt.attr('dtype')} {_args(stmt)}"


def _as_type(s: Stmt) -> str:
    """The type of a reduction, where it is not that of its operands."""
    dtype = s.attr("dtype")
    return "" if dtype is None else f" as {dtype}"


def _literal_of(attr: object) -> str:
    assert isinstance(attr, Literal)
    return show_literal(attr)


def _store(s: Stmt) -> str:
    buffer, index, mode, unproven = s.attrs
    tail = _flag(mode != "plain", f"mode {mode}") + _flag(unproven, "unproven")
    return f"store {show_name(str(buffer))}[{index}] = %{s.args[0]}{tail}"


def _indirect(s: Stmt) -> str:
    size, wrap, check = s.attrs
    return f"indirect %{s.args[0]} size {size}{_flag(wrap, 'wrap')}{_flag(check, 'check')}"


def _bucketize(s: Stmt) -> str:
    buffer, size, right, dtype = s.attrs
    name = show_name(str(buffer))
    return f"bucketize {dtype} %{s.args[0]} in {name} size {size}{_flag(right, 'right')}"


def _inline_asm(s: Stmt) -> str:
    asm, constraints, dtype, is_pure, pack = s.attrs
    quoted = f"{json.dumps(asm)} {json.dumps(constraints)}"
    return f"inline_asm {dtype} ({_args(s)}) {quoted} pack {pack}{_flag(is_pure, 'pure')}"


PRINTERS: Mapping[str, Callable[[Stmt], str]] = {
    **dict.fromkeys(POINTWISE, _plain),
    **dict.fromkeys(
        (
            "cast", "bitcast", "floor_to_int", "ceil_to_int", "trunc_to_int", "round_to_int",
            "rand", "randn", "randint",
        ),
        _typed,
    ),
    "constant": lambda s: f"constant {_literal_of(s.attr('value'))} {s.attr('dtype')}",
    "index": lambda s: f"index {s.attr('expr')} as {s.attr('dtype')}",
    "indirect": _indirect,
    "load": lambda s: (
        f"load {show_name(s.buffer)}[{s.address}]{_flag(s.attr('unproven'), 'unproven')}"
    ),
    "store": _store,
    "bucketize": _bucketize,
    "reduce": lambda s: f"reduce {s.attr('kind')} {_args(s)}{_as_type(s)}",
    "reduce_part": lambda s: (
        f"reduce_part {s.attr('kind')} {_args(s)} over {s.attr('over')}{_as_type(s)}"
    ),
    "scan": lambda s: f"scan {s.attr('combine')} {_args(s)}",
    "sort": lambda s: (
        f"sort {_args(s)}{_flag(s.attr('descending'), 'descending')}"
        f"{_flag(s.attr('stable'), 'stable')}"
    ),
    "get": lambda s: f"get {s.attr('position')} %{s.args[0]}",
    "masked": lambda s: f"masked %{s.args[0]} else {_literal_of(s.attr('other'))}",
    "param": lambda s: f"param {s.attr('position')}",
    "yield": lambda s: f"yield {_args(s)}",
    "assert": lambda s: f"assert %{s.args[0]} {json.dumps(s.attr('message'))}",
    "inline_asm": _inline_asm,
}  # fmt: skip
