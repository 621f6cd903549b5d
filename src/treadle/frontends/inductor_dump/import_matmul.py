"""Operands of matrix products, which a dump lists without order, shape or transposition.

    buf1 [128, 256] = mm of arg0_1 (size unknown) and buf0 [2048, 256]

Only mm(arg0_1 [128, 2048], buf0) can give that. An operand of known shape may be used as it is,
transposed, or, if it is contiguous, seen in another shape of as many elements; one of unknown size
gets the shape the product needs, row-major. If several readings fit, the first is taken and
reported: as they are before transposed before reshaped, in the order of the dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from treadle.index import Expr
from treadle.ir.program import Call, Extern, Group, Operation, Program, Ref
from treadle.ir.types import Buffer, Layout, row_major_strides

RANKS = {"mm": 2, "bmm": 3}
Shape = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class OperandUse:
    """One operand: which buffer, how it is seen, and the shape it then has."""

    name: str
    how: str
    """`plain`, `transposed`, `reshaped`, or `unknown` for an input without a size."""
    shape: Shape


def infer_products(
    program: Program, unknown: Sequence[str]
) -> tuple[Program, list[tuple[str, str]]]:
    """The program with the operands of products in order, and (operation, note) where guessed."""
    inference = _Inference(dict(program.by_name), {n for n in unknown if n in program.by_name})
    ops = tuple([inference.rewritten(op) for op in program.ops])
    buffers = tuple(inference.buffers.values())
    return replace(program, ops=ops, buffers=buffers), inference.notes


class _Inference:
    """Buffers as known so far: a product may settle the size of an input for later ones."""

    def __init__(self, buffers: dict[str, Buffer], missing: set[str]) -> None:
        self.buffers, self.missing = buffers, missing
        self.notes: list[tuple[str, str]] = []

    def rewritten(self, op: Operation) -> Operation:
        if isinstance(op, Group):
            members = tuple([self.rewritten(m) for m in op.members])
            same = all(a is b for a, b in zip(members, op.members, strict=True))
            return op if same else replace(op, members=members)
        if not isinstance(op, Extern) or len(op.writes) != 1:
            return op
        names = [a.buffer for a in op.args if isinstance(a, Ref)]
        names = names * 2 if len(names) == 1 else names
        out = self.buffers[op.writes[0]]
        if len(names) != 2 or _rank(op) != len(out.layout.sizes):
            return op
        readings = self.readings(names, out.layout.sizes)
        if not readings:
            return op
        best = min(sum(_RANK[u.how] for u in r) for r in readings)
        fitting = [r for r in readings if sum(_RANK[u.how] for u in r) == best]
        if len(fitting) > 1 and len(set(names)) > 1:
            text = f"{op.name}: {len(fitting)} readings of its operands fit"
            self.notes.append((op.name, text))
        return replace(op, args=tuple(Ref(self.settled(u, out)) for u in fitting[0]))

    def readings(self, names: list[str], out: Shape) -> list[tuple[OperandUse, OperandUse]]:
        """Every way to use the two operands that gives a result of shape `out`."""
        *batch, m, n = out
        found: dict[tuple[OperandUse, OperandUse], None] = {}
        for left, right in permutations(names):
            for a, b in product(self.uses(left), self.uses(right)):
                inner = a.shape[-1] if a.shape else b.shape[-2] if b.shape else None
                if inner is None:
                    continue
                wanted = ((*batch, m, inner), (*batch, inner, n))
                uses = (self.fitted(a, wanted[0]), self.fitted(b, wanted[1]))
                if uses[0] is not None and uses[1] is not None:
                    found[(uses[0], uses[1])] = None
        return list(found)

    def uses(self, name: str) -> list[OperandUse]:
        """How an operand may be seen; an empty shape is one that the product decides."""
        if name in self.missing:
            return [OperandUse(name, "unknown", ())]
        layout = self.buffers[name].layout
        found = [OperandUse(name, "reshaped", ())] if layout.is_contiguous else []
        if len(layout.sizes) >= 2:
            *outer, rows, columns = layout.sizes
            found.append(OperandUse(name, "plain", layout.sizes))
            found.append(OperandUse(name, "transposed", (*outer, columns, rows)))
        return found

    def fitted(self, use: OperandUse, wanted: Shape) -> OperandUse | None:
        """The use with the wanted shape, if it can have it."""
        if use.how == "unknown":
            return replace(use, shape=wanted)
        if use.how == "reshaped":
            layout = self.buffers[use.name].layout
            fits = layout.numel is Layout.contiguous(wanted).numel and layout.sizes != wanted
            return replace(use, shape=wanted) if fits else None
        return use if use.shape == wanted else None

    def settled(self, use: OperandUse, out: Buffer) -> str:
        """The buffer to pass: itself, or a view that is declared here."""
        old = self.buffers[use.name]
        if use.how == "unknown":
            layout = Layout.contiguous(use.shape)
            self.buffers[use.name] = replace(old, dtype=out.dtype, layout=layout)
            self.missing.discard(use.name)
        if use.how in ("unknown", "plain"):
            return use.name
        strides = row_major_strides(use.shape)
        if use.how == "transposed":
            *outer, row, column = old.layout.strides
            strides = (*outer, column, row)
        view = f"{use.name}.{use.how}"
        layout = Layout(use.shape, strides, old.layout.offset)
        if view in self.buffers and self.buffers[view].layout != layout:
            view = f"{view}.{out.name}"
        root = old.view_of or use.name
        self.buffers[view] = replace(old, name=view, layout=layout, view_of=root)
        return view


_RANK = {"unknown": 0, "plain": 0, "transposed": 1, "reshaped": 4}


def _rank(op: Call) -> int | None:
    base = op.target.removesuffix(".default").removesuffix(".out").rpartition(".")[2]
    return RANKS.get(base)
