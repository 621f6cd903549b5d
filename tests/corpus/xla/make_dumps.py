"""Writes the small XLA dumps in this folder, in every form the format has had.

    python tests/corpus/xla/make_dumps.py

Two programs made up for this: `small` (a donated input, an operation with two results, a value
written over another in place, a reduction with its own little computation) and `loop` (a while).
Everything is stated here by hand, ranges and places included, and printed by a printer of its own,
so that the reader and the re-derivation are tested against something they did not make.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class V:
    """A value: number, name with index, size, shape, allocation, offset, range, instruction."""

    id: int
    name: str
    size: int
    shape: str
    allocation: int
    offset: int
    life: tuple[int, int] | None
    text: str
    positions: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    is_phi: bool = False

    @property
    def instruction(self) -> str:
        return self.name.partition("{")[0]

    @property
    def index(self) -> str:
        return "{" + self.name.partition("{")[2] if "{" in self.name else ""

    @property
    def label(self) -> str:
        return f"<{self.id} {self.name}{' (phi)' if self.is_phi else ''} @0>"


@dataclass(frozen=True)
class Case:
    """A program: headers of allocations, values, the sequence, shapes of whole instructions."""

    name: str
    headers: tuple[tuple[int, str], ...]
    values: tuple[V, ...]
    sequence: tuple[str, ...]
    tables: dict[str, int] = field(default_factory=dict)
    hlo: str = ""


F64, F32 = "f32[64]{0}", "f32[32]{0}"
PAIR = "(f32[64]{0}, s8[256]{0})"
OUT = "(f32[64]{0}, f32[])"
CALL = f'%pair = {PAIR} custom-call({F64} %mul), custom_call_target="split"'

SMALL = Case(
    "small",
    (
        (256, ", parameter 0, shape |f32[64]| at ShapeIndex {}"),
        (256, ", parameter 1, shape |f32[64]| at ShapeIndex {}, maybe-live-out"),
        (16, ", output shape is |(f32[64], f32[])|, maybe-live-out"),
        (4, ", maybe-live-out"),
        (4, ", constant"),
        (4, ", thread-local"),
        (4, ", thread-local"),
        (4, ", thread-local"),
        (784, ", preallocated-temp"),
    ),
    (
        V(0, "x", 4, "f32[]", 5, 0, None, "%x = f32[] parameter(0)", ("x",), ("s, operand 0",)),
        V(1, "y", 4, "f32[]", 6, 0, None, "%y = f32[] parameter(1)", ("y",), ("s, operand 1",)),
        V(2, "s", 4, "f32[]", 7, 0, None, "%s = f32[] add(f32[] %x, f32[] %y)", ("s",)),
        V(3, "a", 256, F64, 0, 0, (0, 10), f"%a = {F64} parameter(0)", ("a",),
          ("mul, operand 0", "new_b, operand 1")),
        V(4, "b", 256, F64, 1, 0, (0, 3), f"%b = {F64} parameter(1)", ("b",),
          ("mul, operand 1",)),
        V(5, "one", 4, "f32[]", 4, 0, (2, 7), "%one = f32[] constant(1)", ("one",),
          ("total, operand 1",)),
        V(6, "mul", 256, F64, 8, 0, (3, 6), f"%mul = {F64} multiply({F64} %a, {F64} %b)",
          ("mul",), ("pair, operand 0", "sum, operand 1")),
        V(7, "pair{}", 16, PAIR, 8, 768, (4, 5), CALL, ("pair {}",), ("first, operand 0 {}",)),
        V(8, "pair{0}", 256, F64, 8, 256, (4, 6), CALL, ("pair {0}", "first"),
          ("sum, operand 0",)),
        V(9, "pair{1}", 256, "s8[256]{0}", 8, 512, (4, 4), CALL, ("pair {1}",)),
        V(10, "sum", 256, F64, 8, 256, (6, 8), f"%sum = {F64} add({F64} %first, {F64} %mul)",
          ("sum",), ("total, operand 0", "new_b, operand 0")),
        V(11, "total", 4, "f32[]", 3, 0, (7, 10),
          f"%total = f32[] reduce({F64} %sum, f32[] %one), dimensions={{0}}, to_apply=%adder",
          ("total", "out {1}"), ("out, operand 1",)),
        V(12, "new_b", 256, F64, 1, 0, (8, 10),
          f"%new_b = {F64} subtract({F64} %sum, {F64} %a)", ("new_b", "out {0}"),
          ("out, operand 0",)),
        V(13, "out{}", 16, OUT, 2, 0, (9, 10), f"%out = {OUT} tuple({F64} %new_b, f32[] %total)",
          ("out {}",)),
    ),
    ("a", "b", "one", "mul", "pair", "first", "sum", "total", "new_b", "out"),
    {"pair": 16, "out": 16},
    """HloModule small, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias) }

%adder (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %main (a: f32[64], b: f32[64]) -> (f32[64], f32[]) {
  %a = f32[64]{0} parameter(0)
  %b = f32[64]{0} parameter(1)
  %one = f32[] constant(1)
  %mul = f32[64]{0} multiply(%a, %b)
  %pair = (f32[64]{0}, s8[256]{0}) custom-call(%mul), custom_call_target="split"
  %first = f32[64]{0} get-tuple-element(%pair), index=0
  %sum = f32[64]{0} add(%first, %mul)
  %total = f32[] reduce(%sum, %one), dimensions={0}, to_apply=%adder
  %new_b = f32[64]{0} subtract(%sum, %a)
  ROOT %out = (f32[64]{0}, f32[]) tuple(%new_b, /*index=1*/%total)
}
""",
)  # fmt: skip

STATE = "(s32[], f32[32]{0})"
WHILE = f"%loop = {STATE} while({STATE} %init), condition=%less_than, body=%square"
HEAD, BODY = f"%c_state = {STATE} parameter(0)", f"%b_state = {STATE} parameter(0)"

LOOP = Case(
    "loop",
    (
        (128, ", parameter 0, shape |f32[32]| at ShapeIndex {}"),
        (128, ", output shape is |f32[32]|, maybe-live-out"),
        (4, ", constant"),
        (4, ", constant"),
        (4, ", constant"),
        (273, ", preallocated-temp"),
    ),
    (
        V(0, "zero", 4, "s32[]", 2, 0, (1, 2), "%zero = s32[] constant(0)", ("zero",),
          ("i0, operand 0",)),
        V(1, "limit", 4, "s32[]", 3, 0, (7, 8), "%limit = s32[] constant(5)", ("limit",),
          ("less, operand 1",)),
        V(2, "step", 4, "s32[]", 4, 0, (12, 13), "%step = s32[] constant(1)", ("step",),
          ("next_i, operand 1",)),
        V(3, "x", 128, F32, 0, 0, (0, 19), f"%x = {F32} parameter(0)", ("x",),
          ("x0, operand 0",)),
        V(4, "i0", 4, "s32[]", 5, 0, (2, 5), "%i0 = s32[] copy(s32[] %zero)",
          ("i0", "init {0}"), ("init, operand 0", "loop, operand 0 {0}")),
        V(5, "x0", 128, F32, 5, 64, (3, 5), f"%x0 = {F32} copy({F32} %x)", ("x0", "init {1}"),
          ("init, operand 1", "loop, operand 0 {1}")),
        V(6, "init{}", 16, STATE, 5, 192, (4, 5), f"%init = {STATE} tuple(s32[] %i0, {F32} %x0)",
          ("init {}",), ("loop, operand 0 {}",)),
        V(7, "less", 1, "pred[]", 5, 272, (8, 9),
          "%less = pred[] compare(s32[] %c_i, s32[] %limit), direction=LT", ("less",)),
        V(8, "next_i", 4, "s32[]", 5, 0, (13, 16),
          "%next_i = s32[] add(s32[] %b_i, s32[] %step)", ("next_i", "next {0}"),
          ("next, operand 0",)),
        V(9, "next_x", 128, F32, 5, 64, (14, 16), f"%next_x = {F32} multiply({F32} %b_x)",
          ("next_x", "next {1}"), ("next, operand 1",)),
        V(10, "next{}", 16, STATE, 5, 192, (15, 16),
          f"%next = {STATE} tuple(s32[] %next_i, {F32} %next_x)", ("next {}",)),
        V(11, "done", 128, F32, 1, 0, (18, 19), f"%done = {F32} negate({F32} %result)",
          ("done",)),
        V(12, "c_state{}", 16, STATE, 5, 192, (5, 9), HEAD, ("c_state {}",),
          ("c_i, operand 0 {}",), True),
        V(13, "c_state{0}", 4, "s32[]", 5, 0, (5, 9), HEAD, ("c_state {0}", "c_i"),
          ("less, operand 0",), True),
        V(14, "c_state{1}", 128, F32, 5, 64, (5, 9), HEAD, ("c_state {1}",), (), True),
        V(15, "b_state{}", 16, STATE, 5, 192, (9, 11), BODY, ("b_state {}",),
          ("b_i, operand 0 {}", "b_x, operand 0 {}"), True),
        V(16, "b_state{0}", 4, "s32[]", 5, 0, (9, 13), BODY, ("b_state {0}", "b_i"),
          ("next_i, operand 0",), True),
        V(17, "b_state{1}", 128, F32, 5, 64, (9, 14), BODY, ("b_state {1}", "b_x"),
          ("next_x, operand 0",), True),
        V(18, "loop{}", 16, STATE, 5, 192, (16, 17), WHILE, ("loop {}",),
          ("result, operand 0 {}",), True),
        V(19, "loop{0}", 4, "s32[]", 5, 0, (16, 16), WHILE, ("loop {0}",), (), True),
        V(20, "loop{1}", 128, F32, 5, 64, (16, 18), WHILE, ("loop {1}", "result"),
          ("done, operand 0",), True),
    ),
    ("x", "zero", "i0", "x0", "init", "c_state", "c_i", "limit", "less", "b_state", "b_i", "b_x",
     "step", "next_i", "next_x", "next", "loop", "result", "done"),
    {"init": 16, "next": 16, "c_state": 16, "b_state": 16, "loop": 16},
    """HloModule loop, is_scheduled=true

less_than {
  c_state = (s32[], f32[32]{0}) parameter(0)
  c_i = s32[] get-tuple-element(c_state), index=0
  limit = s32[] constant(5)
  ROOT less = pred[] compare(c_i, limit), direction=LT
} // less_than

square {
  b_state = (s32[], f32[32]{0}) parameter(0)
  b_i = s32[] get-tuple-element(b_state), index=0
  b_x = f32[32]{0} get-tuple-element(b_state), index=1
  step = s32[] constant(1)
  next_i = s32[] add(b_i, step)
  next_x = f32[32]{0} multiply(b_x, b_x)
  ROOT next = (s32[], f32[32]{0}) tuple(next_i, next_x)
} // square

ENTRY main {
  x = f32[32]{0} parameter(0)
  zero = s32[] constant(0)
  i0 = s32[] copy(zero)
  x0 = f32[32]{0} copy(x)
  init = (s32[], f32[32]{0}) tuple(i0, x0)
  loop = (s32[], f32[32]{0}) while(init), condition=less_than, body=square
  result = f32[32]{0} get-tuple-element(loop), index=1
  ROOT done = f32[32]{0} negate(result)
} // main

""",
)  # fmt: skip


@dataclass(frozen=True)
class Form:
    """Which of the numbered changes of the format are in."""

    name: str
    joined: bool = False
    live: bool = True
    peak_index: bool = False
    cumulative: bool = False
    tree: bool = False
    split: bool = False
    none: bool = False
    recoloured: bool = False
    no_peak: bool = False
    page: bool = False


FORMS = (
    Form("2024-09", joined=True, live=False),
    Form("2024-10", joined=True),
    Form("2024-11"),
    Form("2025-04", peak_index=True),
    Form("2025-05", peak_index=True, cumulative=True),
    Form("2025-07", peak_index=True, cumulative=True, tree=True),
    Form("2026-04", peak_index=True, cumulative=True, tree=True, split=True),
    Form("2026-06", peak_index=True, cumulative=True, tree=True, split=True, none=True,
         recoloured=True),
    Form("2026-08", peak_index=True, split=True, none=True, no_peak=True, page=True),
)  # fmt: skip


def allocations(case: Case, form: Form) -> str:
    text = "BufferAssignment:\n"
    for number, (size, rest) in enumerate(case.headers):
        page = f", page {number}" if form.page else ""
        text += f"allocation {number}: size {size}{page}{rest}:\n"
        for v in case.values:
            if v.allocation == number:
                text += f" value: {v.label} (size={v.size},offset={v.offset}): {v.shape}\n"
        if form.recoloured and number == 1:
            first = case.values[3]
            text += " reused by buffers of a different color:\n"
            text += f"  value: {first.label} (color=1)\n"
    return text


def human(size: int) -> str:
    return f"{size}B" if size < 1024 else f"{size / 1024:.1f}KiB"


def values(case: Case, form: Form) -> str:
    total = sum(size for size, _ in case.headers)
    text = f"\nTotal bytes used: {total} ({human(total)})\n\nUsed values:\n"
    for v in case.values:
        lines = [v.label, " positions:", *[f"  {p}" for p in v.positions], " uses:"]
        lines += [f"  {u}" for u in v.uses]
        if form.none and not v.uses:
            lines.append("  (none)")
        lines.append(f" from instruction: {v.text}")
        text += "\n".join(lines) + ("" if form.joined else "\n")
    return text


def peak_moment(case: Case) -> int:
    best, moment = 0, 0
    for time in range(len(case.sequence) + 2):
        now = 0
        for v in case.values:
            if v.life and v.life[0] <= time <= v.life[1] + 1:
                now += case.tables.get(v.instruction, v.size)
        if now > best:
            best, moment = now, time
    return moment


def live(case: Case, form: Form) -> str:
    count = len(case.sequence)
    text = f"HloLiveRange (max {count}):\n  InstructionSequence:\n"
    text += "".join(f"    {k}:{name}\n" for k, name in enumerate(case.sequence))
    text += "  BufferLiveRange:\n"
    for v in case.values:
        if v.life:
            index = v.index or "{}"
            text += f"    {v.instruction}{index}:{v.life[0]}-{v.life[1]}\n"
    if form.no_peak:
        return text + "  The peak could not be found: some shapes have no bound.\n"
    moment = peak_moment(case)
    text += f"  Live ranges at {moment} (peak):\n"
    rows = [v for v in case.values if v.life and v.life[0] <= moment <= v.life[1]]
    if form.cumulative:
        rows.sort(key=lambda v: (-v.size, v.instruction, v.index))
    total = 0
    for v in rows:
        size = v.size if form.peak_index else case.tables.get(v.instruction, v.size)
        total += size
        index = (v.index or "{}") if form.peak_index else ""
        more = f" (cumulative: {total} bytes)" if form.cumulative else ""
        text += f"    {v.instruction}{index}: {size} bytes{more}\n"
    return text + (tree(rows, total) if form.tree else "")


def tree(rows: list[V], total: int) -> str:
    def row(drawing: str, label: str, whole: int, own: int, rest: int) -> str:
        percent = f"{100 * whole / total:.1f}"
        return (
            f"    {drawing}{label} ({percent}%, total: {spaced(whole)} bytes, "
            f"current: {spaced(own)} bytes, remaining: {spaced(rest)} bytes)\n"
        )

    text = f"  Stack trace breakdown for peak usage: {spaced(total)} bytes\n"
    text += row("", "main", total, 0, total)
    inner = rows[: len(rows) // 2]
    whole, rest = sum(v.size for v in inner), total
    text += row("  ├── ", "layer", whole, 0, rest)
    for k, v in enumerate(inner):
        rest -= v.size
        end = "└── " if k == len(inner) - 1 else "├── "
        text += row(f"  │   {end}", v.instruction, v.size, v.size, rest)
    for k, v in enumerate(rows[len(inner) :]):
        rest -= v.size
        end = "└── " if k == len(rows) - len(inner) - 1 else "├── "
        text += row(f"  {end}", v.instruction, v.size, v.size, rest)
    return text


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def dump(case: Case, form: Form) -> dict[str, str]:
    """The files of one dump by the end of their names."""
    hlo = {".txt": case.hlo} if case.hlo else {}
    if form.split:
        return hlo | {
            "-buffer-assignment.txt": allocations(case, form),
            "-buffer-assignment-values.txt": values(case, form),
            "-live-range.txt": live(case, form),
        }
    text = allocations(case, form) + values(case, form)
    return hlo | {"-buffer-assignment.txt": text + ("\n\n" + live(case, form) if form.live else "")}


OLD_REPORT = """Total bytes used: 1332 (1.3KiB)

Allocations sorted by size:

cumulative_size; total_size - cumulative_size; allocation
------------------------------------------------------------------------------
      784B( 59%);       548B; allocation 8: size 784B, preallocated-temp:
    1.0KiB( 78%);       292B; @0


Allocations sorted by size with their values:
allocation 8: size 784B, preallocated-temp:

\tcumulative_size;       size;       offset; used_by_n_values; shapes_list
\t------------------------------------------------------------
\t     256B( 33%);       256B;            0;                1; f32[64]
\t     512B( 65%);       256B;          256;                2; 2×f32[64]
\t     768B( 98%);       256B;          512;                1; s8[256]
\t     784B(100%);        16B;          768;                1; (f32[64], s8[256])

@0
""".replace("@0", "allocation 0: size 256B, parameter 0, shape |f32[64]| at ShapeIndex {}:")

NEW_REPORT = """Memory Space: default (color=0)
Total bytes: 1332 (1.3KiB)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
       256B( 33%);       256B;            0;                1; f32[64]
       512B( 65%);       256B;          256;                2; 2×f32[64]
       768B( 98%);       256B;          512;                1; s8[256]
       784B(100%);        16B;          768;                1; (f32[64], s8[256])

  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
       256B(100%);       256B;            0;                1; f32[64]

"""


def all_files() -> dict[str, str]:
    """Every file of this folder that is made here."""
    files: dict[str, str] = {}
    for case in (SMALL, LOOP):
        for form in FORMS:
            for end, text in dump(case, form).items():
                files[f"{case.name}.{form.name}{end}"] = text
    files["small.2024-11-memory-usage-report.txt"] = OLD_REPORT
    files["small.2026-04-memory-usage-report.txt"] = NEW_REPORT
    return files


if __name__ == "__main__":
    for name, text in all_files().items():
        (HERE / name).write_bytes(text.encode())
        print(name)
