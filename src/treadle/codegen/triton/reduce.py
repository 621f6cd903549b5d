"""Reductions in Triton: of a whole tile at once, or of tiles that follow each other in a loop.

In a loop partial results have the shape of a tile, and are combined across it at the end; what
does not exist (masked points) counts as what adds nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from treadle.codegen.triton.types import converted, held, rounded
from treadle.ir.body import Stmt
from treadle.ir.types import DType

if TYPE_CHECKING:
    from treadle.codegen.triton.writer import TritonWriter

NAN = 'float("nan")'
INF = 'float("inf")'
LOWEST = "-3.4028234663852886e38"


class Reducer(ABC):
    """One reduction of a nest."""

    passes = 1

    def __init__(self, w: TritonWriter, stmt: Stmt, number: int) -> None:
        self.w, self.stmt, self.number = w, stmt, number
        self.kind = str(stmt.attr("kind"))
        result = w.types[number]
        to = result[0] if isinstance(result, tuple) else result
        assert to is not None, "a reduction has a type"
        self.to: DType = to
        self.acc = f"s{number}"
        (self.axis,) = [k for k, a in enumerate(w.plan.tiles) if a.reduces]
        self.loop = next(a.loop for a in w.plan.tiles if a.reduces)

    # -- what all kinds share ------------------------------------------------------------------
    def value(self, k: int = 0) -> str:
        """Operand `k` in the type of the result."""
        a = self.stmt.args[k]
        return converted(self.w.name_of(a), self.w.type_of(a), self.to)

    def whole(self, text: str) -> str:
        """A value in the shape of the whole tile: it may not vary along all of it."""
        return f"tl.broadcast_to({text}, [{self.shape}])"

    @property
    def shape(self) -> str:
        """The sizes of the tile."""
        return ", ".join(str(self.w.tile_size(a)) for a in self.w.plan.tiles)

    def guarded(self, text: str, identity: str) -> str:
        """A value, and what adds nothing where there is no point."""
        mask = self.w.mask_of(self.loop)
        whole = self.whole(text)
        return whole if mask is None else f"tl.where({mask}, {whole}, {identity})"

    def across(self, function: str, text: str) -> str:
        """Combine a tile along the reduction."""
        kept = "True" if len(self.w.plan.tiles) > 1 else "False"
        return f"{function}({text}, {self.axis}, keep_dims={kept})"

    def full(self, value: str, kind: str) -> str:
        """A tile of one value."""
        return f"tl.full([{self.shape}], {value}, {kind})"

    # -- what kinds say ------------------------------------------------------------------------
    @abstractmethod
    def before(self, which: int) -> list[str]:
        """Lines before a loop over tiles."""

    @abstractmethod
    def at_point(self, which: int) -> list[str]:
        """Lines at each tile."""

    @abstractmethod
    def after(self, which: int) -> list[str]:
        """Lines behind the loop."""

    @abstractmethod
    def results(self) -> list[str]:
        """Expressions of the results."""

    def at_once(self) -> list[str]:
        """All of it where the tile is the whole row."""
        lines: list[str] = []
        for which in range(self.passes):
            lines += [*self.before(which), *self.at_point(which), *self.after(which)]
        return lines


class CombiningReducer(Reducer):
    """sum, prod, max, min, any, all, dot."""

    @property
    def _held(self) -> str:
        if self._is_long:
            return "tl.float64"
        return "tl.int32" if self.to is DType.BOOL else held(self.to)

    @cached_property
    def _is_long(self) -> bool:
        """Whether each point of the tile adds up more terms than numerics allow in f32.

        Across a tile sums go in pairs, which is as good as a block.
        """
        is_sum = self.kind in ("sum", "dot") and self.to is DType.F32
        return is_sum and 0 < self.w.longest_block < self.w.terms_per_point()

    @property
    def _identity(self) -> str:
        if self.kind in ("max", "min"):
            return _bound(self.to, lowest=self.kind == "max")
        return "1" if self.kind in ("prod", "all") else "0"

    def _operand(self) -> str:
        if self.kind in ("any", "all"):
            a = self.stmt.args[0]
            return f"({self.w.name_of(a)} != 0).to(tl.int32)"
        if self.kind == "dot":
            return f"{self.value(0)} * {self.value(1)}"
        return f"({self.value()}).to({self._held})"

    def before(self, which: int) -> list[str]:
        """A tile of what adds nothing."""
        lines = [f"{self.acc} = {self.full(self._identity, self._held)}"]
        if self._watches_nan:
            lines.append(f"{self.acc}_n = {self.full('0', 'tl.int32')}")
        return lines

    @property
    def _watches_nan(self) -> bool:
        return self.kind in ("max", "min") and self.to.is_float

    def at_point(self, which: int) -> list[str]:
        """Combine point by point."""
        x = f"{self.acc}_x"
        lines = [f"{x} = {self.guarded(self._operand(), self._identity)}"]
        lines.append(f"{self.acc} = {_combine(self.kind, self.acc, x)}")
        if self._watches_nan:
            lines.append(f"{self.acc}_n = {self.acc}_n | ({x} != {x}).to(tl.int32)")
        return lines

    def after(self, which: int) -> list[str]:
        """Combine across the tile."""
        function = {"sum": "tl.sum", "dot": "tl.sum", "max": "tl.max", "any": "tl.max"}
        function |= {"min": "tl.min", "all": "tl.min"}
        if self.kind == "prod":
            kept = "True" if len(self.w.plan.tiles) > 1 else "False"
            lines = [f"{self.acc} = tl.reduce({self.acc}, {self.axis}, tr_mul, keep_dims={kept})"]
        else:
            lines = [f"{self.acc} = {self.across(function[self.kind], self.acc)}"]
        if self._watches_nan:
            lines.append(f"{self.acc}_n = {self.across('tl.max', f'{self.acc}_n')}")
            lines.append(f"{self.acc} = tl.where({self.acc}_n != 0, {NAN}, {self.acc})")
        return lines

    def at_once(self) -> list[str]:
        """Without an accumulator."""
        x = f"{self.acc}_x"
        lines = [f"{x} = {self.guarded(self._operand(), self._identity)}", f"{self.acc} = {x}"]
        if self._watches_nan:
            lines.append(f"{self.acc}_n = ({x} != {x}).to(tl.int32)")
        return [*lines, *self.after(0)]

    def results(self) -> list[str]:
        """The result in its type."""
        if self.to is DType.BOOL:
            return [f"({self.acc} != 0)"]
        if self.to.is_int:
            return [f"({self.acc}).to({held(self.to)})"]
        if self._is_long:
            return [f"({self.acc}).to(tl.float32)"]
        return [rounded(self.acc, self.to)]


class PositionReducer(Reducer):
    """argmax, argmin: the first of equals; a NaN wins over everything but an earlier NaN."""

    def before(self, which: int) -> list[str]:
        """Nothing better than the worst, nowhere."""
        t = self.w.type_of(self.stmt.args[0])
        worst = _bound(t, lowest=self.kind == "argmax")
        return [
            f"{self.acc}_b = {self.full(worst, self._held(t))}",
            f"{self.acc} = {self.full(str(2**31 - 1), 'tl.int32')}",
        ]

    def _held(self, t: DType) -> str:
        return "tl.int32" if t is DType.BOOL else held(t)

    def at_point(self, which: int) -> list[str]:
        """Take what is better than what this point of the tile has seen."""
        a = self.stmt.args[0]
        t = self.w.type_of(a)
        x, best, at = f"{self.acc}_x", f"{self.acc}_b", self.acc
        sign = ">" if self.kind == "argmax" else "<"
        where = self.w.position_text()
        mask = self.w.mask_of(self.loop)
        nan = f" | (({x} != {x}) & ({best} == {best}))" if t.is_float else ""
        # Nothing was seen yet: even the worst is better.
        better = f"(({x} {sign} {best}){nan} | ({at} == {2**31 - 1}))"
        if mask is not None:
            better = f"({better} & {mask})"
        return [
            f"{x} = {self.whole(f'({self.w.name_of(a)}).to({self._held(t)})')}",
            f"{self.acc}_t = {better}",
            f"{at} = tl.where({self.acc}_t, {where}, {at})",
            f"{best} = tl.where({self.acc}_t, {x}, {best})",
        ]

    def after(self, which: int) -> list[str]:
        """Of all points of the tile the best, and of equals the first."""
        t = self.w.type_of(self.stmt.args[0])
        best, at = f"{self.acc}_b", self.acc
        worst = _bound(t, lowest=self.kind == "argmax")
        lines = []
        function = "tl.max" if self.kind == "argmax" else "tl.min"
        seen = f"({at} != {2**31 - 1})"
        if t.is_float:
            lines += [
                f"{at}_i = ({best} != {best}) & {seen}",
                f"{at}_n = {self.across('tl.max', f'{at}_i.to(tl.int32)')}",
                f"{at}_f = tl.where({best} != {best}, {worst}, {best})",
                f"{at}_m = {self.across(function, f'{at}_f')}",
                f"{at}_w = tl.where({at}_n != 0, {best} != {best}, {best} == {at}_m)",
            ]
        else:
            lines += [
                f"{self.acc}_m = {self.across(function, best)}",
                f"{self.acc}_w = {best} == {self.acc}_m",
            ]
        last = f"tl.where({self.acc}_w & {seen}, {at}, {2**31 - 1})"
        return [*lines, f"{at} = {self.across('tl.min', last)}"]

    def results(self) -> list[str]:
        """The place as a whole number."""
        return [f"({self.acc}).to(tl.int64)"]


class SpreadReducer(Reducer):
    """welford, welford_combine: the mean first, then squared deviations from it."""

    passes = 2

    @property
    def _weighs(self) -> bool:
        return self.kind == "welford_combine"

    def before(self, which: int) -> list[str]:
        """Sums of zero."""
        lines = [f"{self.acc}_{which} = {self.full('0', held(self.to))}"]
        if which == 0 and self._weighs:
            lines.append(f"{self.acc}_w = {self.full('0', held(self.to))}")
        return lines

    def at_point(self, which: int) -> list[str]:
        """Add values, then squares of what they are away from the mean."""
        x, d = self.value(), f"{self.acc}_d"
        weight = self.value(2) if self._weighs else ""
        if which == 1:
            squared = f"{d} * {d}"
            if self._weighs:
                squared = self.guarded(f"({self.value(1)} + {weight} * {d} * {d})", "0")
            return [
                f"{d} = {self.guarded(f'({x} - {self.acc}_mean)', '0')}",
                f"{self.acc}_1 += {squared}",
            ]
        if not self._weighs:
            return [f"{self.acc}_0 += {self.guarded(x, '0')}"]
        return [
            f"{self.acc}_0 += {self.guarded(f'{x} * {weight}', '0')}",
            f"{self.acc}_w += {self.guarded(weight, '0')}",
        ]

    def after(self, which: int) -> list[str]:
        """The mean, or the sum of squares."""
        total = self.across("tl.sum", f"{self.acc}_{which}")
        if which == 1:
            return [f"{self.acc}_m2 = {total}"]
        count = self.w.count_text()
        if self._weighs:
            count = self.across("tl.sum", f"{self.acc}_w")
        some = f"tl.where({self.acc}_count == 0, 1.0, {self.acc}_count)"
        return [f"{self.acc}_count = {count}", f"{self.acc}_mean = {total} / {some}"]

    def results(self) -> list[str]:
        """Mean, squares, weight."""
        return [f"{self.acc}_mean", f"{self.acc}_m2", f"{self.acc}_count"]


class OneWalkSpread(SpreadReducer):
    """welford in a loop: each point of the tile sums up what its values are off its first one.

    Their squares are no larger than what the sum of squares may be off anyway, for the first value
    is one of those that the spread is of. Across the tile the points are put together by what
    their means are off the mean of all.
    """

    passes = 1

    def before(self, which: int) -> list[str]:
        """No first value, sums of zero."""
        zero = self.full("0", held(self.to))
        alone = "tl.full([], 0, tl.float32)"
        counted = alone if self._mask is None else self.full("0", "tl.float32")
        return [*[f"{self.acc}_{k} = {zero}" for k in "ksq"], f"{self.acc}_n = {counted}"]

    @property
    def _mask(self) -> str | None:
        return self.w.mask_of(self.loop)

    def at_point(self, which: int) -> list[str]:
        """The first value, or how far this one is from it."""
        x, k, s, q, n, d = (f"{self.acc}_{part}" for part in "xksqnd")
        away, one = f"{x} - {k}", "1.0"
        if self._mask is not None:
            away = self.guarded(f"({away})", "0")
            one = f"tl.where({self._mask}, 1.0, 0.0)"
        return [
            f"{x} = {self.guarded(self.value(), '0')}",
            f"{k} = tl.where({n} == 0, {x}, {k})",
            f"{d} = {away}",
            f"{s} += {d}",
            f"{q} += {d} * {d}",
            f"{n} += {one}",
        ]

    def after(self, which: int) -> list[str]:
        """The mean of all, and squares of what is off it."""
        k, s, q, n, d = (f"{self.acc}_{part}" for part in "ksqnd")
        total = self.across("tl.sum", f"{k} * {n}")
        some = f"tl.where({self.acc}_count == 0, 1.0, {self.acc}_count)"
        squares = self.across("tl.sum", f"{q} + {n} * {d} * {d}")
        return [
            f"{self.acc}_count = {self.w.count_text()}",
            f"{d} = {s} / tl.maximum({n}, 1.0)",
            f"{k} = {k} + {d}",
            f"{q} = tl.maximum({q} - {s} * {d}, 0.0, propagate_nan=tl.PropagateNan.ALL)",
            f"{self.acc}_mean = {total} / {some}",
            f"{d} = {k} - {self.acc}_mean",
            f"{self.acc}_m2 = {squares}",
        ]

    def at_once(self) -> list[str]:
        """A row that is there as a whole has its mean first."""
        lines: list[str] = []
        for which in range(SpreadReducer.passes):
            lines += SpreadReducer.before(self, which)
            lines += SpreadReducer.at_point(self, which)
            lines += SpreadReducer.after(self, which)
        return lines


class OnlineSoftmax(Reducer):
    """The largest, and the sum of exponentials of what is below it, in one walk.

    Each tile has a largest; where it is larger than those before, their sums shrink accordingly. A
    NaN makes both NaN. From the lowest number there is, what is lower (-inf) is far below.
    """

    @property
    def _row(self) -> str:
        """The sizes of what a row has one of."""
        sizes = [1 if a.reduces else self.w.tile_size(a) for a in self.w.plan.tiles]
        return ", ".join(map(str, sizes)) if len(sizes) > 1 else ""

    def before(self, which: int) -> list[str]:
        """Nothing seen."""
        return [
            f"{self.acc}_t = tl.full([{self._row}], {LOWEST}, tl.float32)",
            f"{self.acc}_s = {self.full('0', 'tl.float32')}",
        ]

    def at_point(self, which: int) -> list[str]:
        """A larger one or not, and what the tile adds."""
        x, top, high, total = (f"{self.acc}_{k}" for k in "xths")
        kept = "True" if len(self.w.plan.tiles) > 1 else "False"
        largest = f"tl.reduce({x}, {self.axis}, tr_max, keep_dims={kept})"
        return [
            f"{x} = {self.guarded(f'({self.value()}).to(tl.float32)', f'-{INF}')}",
            f"{high} = tr_max({top}, {largest})",
            f"{total} = {total} * tl.exp({top} - {high}) + tl.exp({x} - {high})",
            f"{top} = {high}",
        ]

    def after(self, which: int) -> list[str]:
        """Across the tile; where nothing was added there was nothing but -inf."""
        top, total = f"{self.acc}_t", f"{self.acc}_s"
        return [
            f"{total} = {self.across('tl.sum', total)}",
            f"{top} = tl.where({total} == 0, -{INF}, {top})",
        ]

    def results(self) -> list[str]:
        """Largest and sum."""
        return [rounded(f"{self.acc}_t", self.to), rounded(f"{self.acc}_s", self.to)]


def _combine(kind: str, a: str, b: str) -> str:
    if kind in ("sum", "dot"):
        return f"{a} + {b}"
    if kind == "prod":
        return f"{a} * {b}"
    return f"tl.maximum({a}, {b})" if kind in ("max", "any") else f"tl.minimum({a}, {b})"


def _bound(t: DType, lowest: bool) -> str:
    if t.is_float:
        return f"-{INF}" if lowest else INF
    if t is DType.BOOL:
        return "0" if lowest else "1"
    bits = t.bits - (t.cls == "int")
    if lowest:
        return str(-(1 << bits)) if t.cls == "int" else "0"
    return str((1 << bits) - 1)


KINDS: dict[str, Callable[[TritonWriter, Stmt, int], Reducer]] = {
    **dict.fromkeys(("sum", "prod", "max", "min", "any", "all", "dot"), CombiningReducer),
    "argmax": PositionReducer,
    "argmin": PositionReducer,
    "welford": OneWalkSpread,
    "welford_combine": SpreadReducer,
    "online_softmax": OnlineSoftmax,
}


def reducer_for(w: TritonWriter, stmt: Stmt, number: int) -> Reducer:
    """The form of a reduction."""
    return KINDS[str(stmt.attr("kind"))](w, stmt, number)
