"""Reductions whose parts are combined in any order: vectors, blocks, lanes.

A reduction has states, each with a partial form (inside the innermost loops) and a wide form (into
which partial ones flow). Floats are added up in f32 as long as the numerics allow and flow into
f64; extremes remember a NaN in a state of its own, so that their loops need no branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from treadle.codegen.c.reduce import Request
from treadle.codegen.c.types import converted, held, largest, smallest, wrapping
from treadle.ir.types import DType


@dataclass(frozen=True)
class State:
    """One accumulator."""

    name: str
    partial: str
    """The C type inside the innermost loops."""
    wide: str
    """The C type that parts flow into."""
    start: str
    clause: str
    """The operator by which parts are combined, as OpenMP calls it."""

    def joined(self, into: str, part: str) -> str:
        """The line that lets a part flow into what is there."""
        if self.clause == "max":
            return f"{into} = {part} > {into} ? {part} : {into};"
        if self.clause == "min":
            return f"{into} = {part} < {into} ? {part} : {into};"
        return f"{into} {self.clause}= {part};"


Names = Callable[[str], str]
"""From a state's or a known value's name to what stands for it at a point."""


@dataclass(frozen=True)
class PartialWalk:
    """One pass of a reduction: its states, the lines at each point, what is known afterwards."""

    states: tuple[State, ...]
    at_point: Callable[[Names], tuple[str, ...]]
    known: tuple[tuple[str, str, Callable[[Names], str]], ...] = ()
    """(name, C type, expression of the states) of values that the next pass needs."""


@dataclass(frozen=True)
class PartialReduction:
    """The passes of a reduction and expressions for its results."""

    walks: tuple[PartialWalk, ...]
    results: Callable[[Names], tuple[str, ...]]


def _float_state(name: str, to: DType, start: str, clause: str) -> State:
    partial = "double" if to is DType.F64 else "float"
    return State(name, partial, "double", start, clause)


def _added(r: Request) -> PartialReduction:
    a = r.name
    if r.to.is_float:
        state = _float_state(a, r.to, "0", "+")
        walk = PartialWalk((state,), lambda n: (f"{n(a)} += {r.operand()};",))
        return PartialReduction((walk,), lambda n: (_rounded(n(a), r.to),))
    return _whole(r, "0", "+", lambda n: f"{n(a)} += ({wrapping(r.to)})({r.operand()});")


def _multiplied(r: Request) -> PartialReduction:
    a = r.name
    if r.to.is_float:
        state = _float_state(a, r.to, "1", "*")
        walk = PartialWalk((state,), lambda n: (f"{n(a)} *= {r.operand()};",))
        return PartialReduction((walk,), lambda n: (_rounded(n(a), r.to),))
    return _whole(r, "1", "*", lambda n: f"{n(a)} *= ({wrapping(r.to)})({r.operand()});")


def _dot(r: Request) -> PartialReduction:
    a = r.name
    if r.to.is_float:
        state = _float_state(a, r.to, "0", "+")
        product = f"({r.operand(0)}) * ({r.operand(1)})"
        walk = PartialWalk((state,), lambda n: (f"{n(a)} += {product};",))
        return PartialReduction((walk,), lambda n: (_rounded(n(a), r.to),))
    w = wrapping(r.to)
    product = f"({w})({r.operand(0)}) * ({w})({r.operand(1)})"
    return _whole(r, "0", "+", lambda n: f"{n(a)} += {product};")


def _whole(r: Request, start: str, clause: str, line: Callable[[Names], str]) -> PartialReduction:
    """Whole numbers wrap, whatever the order."""
    state = State(r.name, wrapping(r.to), wrapping(r.to), start, clause)
    walk = PartialWalk((state,), lambda n: (line(n),))
    return PartialReduction((walk,), lambda n: (f"({held(r.to)}){n(r.name)}",))


def _extreme(which: str) -> Callable[[Request], PartialReduction]:
    sign = ">" if which == "max" else "<"

    def reduction(r: Request) -> PartialReduction:
        a, nan, x = r.name, f"{r.name}_nan", f"{r.name}_x"
        t = held(r.to)
        start = (smallest if which == "max" else largest)(r.to)
        states = [State(a, t, t, start, which)]
        if r.to.is_float:
            states.append(State(nan, "int32_t", "int32_t", "0", "|"))

        def at_point(n: Names) -> tuple[str, ...]:
            lines = [
                f"const {t} {x} = {r.operand()};",
                f"{n(a)} = {x} {sign} {n(a)} ? {x} : {n(a)};",
            ]
            if r.to.is_float:
                lines.append(f"{n(nan)} |= {x} != {x};")
            return tuple(lines)

        def results(n: Names) -> tuple[str, ...]:
            return (f"{n(nan)} ? ({t})NAN : {n(a)}" if r.to.is_float else n(a),)

        return PartialReduction((PartialWalk(tuple(states), at_point),), results)

    return reduction


def _position(which: str) -> Callable[[Request], PartialReduction]:
    """The extreme first, then the first place that has it; a NaN is beyond everything."""

    def reduction(r: Request) -> PartialReduction:
        a, x, t = r.name, f"{r.name}_x", held(r.types[0])
        top = _extreme(which)(
            Request(r.values, r.types, r.types[0], f"{a}_top", r.position, r.length)
        )
        kind, none = ("int32_t", "INT32_MAX") if r.is_short else ("int64_t", "INT64_MAX")

        def second(n: Names) -> tuple[str, ...]:
            # Where the extreme is a NaN nothing equals it; where it is not, there is none.
            found = f"({x} == {n(f'{a}_most')})" + (
                f" | ({x} != {x})" if r.types[0].is_float else ""
            )
            return (
                f"const {t} {x} = {r.values[0]};",
                f"const {kind} {a}_at = ({found}) ? ({kind})({r.position}) : {none};",
                f"{n(a)} = {a}_at < {n(a)} ? {a}_at : {n(a)};",
            )

        most = (f"{a}_most", t, lambda n: top.results(n)[0])
        walks = (
            PartialWalk(top.walks[0].states, top.walks[0].at_point, (most,)),
            PartialWalk((State(a, kind, kind, none, "min"),), second),
        )
        return PartialReduction(walks, lambda n: (f"({held(r.to)}){n(a)}",))

    return reduction


def _bits(
    clause: str, start: str, value: Callable[[Request], str]
) -> Callable[[Request], PartialReduction]:
    def reduction(r: Request) -> PartialReduction:
        state = State(r.name, held(r.to), held(r.to), start, clause)
        walk = PartialWalk((state,), lambda n: (f"{n(r.name)} {clause}= {value(r)};",))
        return PartialReduction((walk,), lambda n: (n(r.name),))

    return reduction


def _spread(r: Request, mean: str, m2: str | None, weight: str | None) -> PartialReduction:
    """Mean and total weight first, then the squared deviations from that mean."""
    a, apart = r.name, f"{r.name}_apart"
    t = held(r.to)
    total = _float_state(f"{a}_sum", r.to, "0", "+")
    weights = (_float_state(f"{a}_weight", r.to, "0", "+"),) if weight else ()

    def first(n: Names) -> tuple[str, ...]:
        if weight is None:
            return (f"{n(f'{a}_sum')} += {mean};",)
        return (f"{n(f'{a}_sum')} += {mean} * {weight};", f"{n(f'{a}_weight')} += {weight};")

    def all_weight(n: Names) -> str:
        return f"({t})({r.length})" if weight is None else n(f"{a}_weight")

    def the_mean(n: Names) -> str:
        w = all_weight(n)
        return f"({t})({n(f'{a}_sum')} / ({w} == 0 ? 1 : {w}))"

    def second(n: Names) -> tuple[str, ...]:
        squared = f"{apart} * {apart}"
        part = squared if weight is None else f"{m2} + {weight} * {squared}"
        return (f"const {t} {apart} = {mean} - {n(f'{a}_mean')};", f"{n(f'{a}_m2')} += {part};")

    walks = (
        PartialWalk(
            (total, *weights),
            first,
            ((f"{a}_mean", t, the_mean), (f"{a}_total", t, all_weight)),
        ),
        PartialWalk((_float_state(f"{a}_m2", r.to, "0", "+"),), second),
    )

    def results(n: Names) -> tuple[str, ...]:
        return tuple(_rounded(n(f"{a}_{part}"), r.to) for part in ("mean", "m2", "total"))

    return PartialReduction(walks, results)


def _online_softmax(r: Request) -> PartialReduction:
    a, x, t = r.name, f"{r.name}_x", held(r.to)
    top = _extreme("max")(Request(r.values, r.types, r.to, f"{a}_top", r.position, r.length))
    exp = "exp" if r.to is DType.F64 else r.exp

    def second(n: Names) -> tuple[str, ...]:
        most, weight = n(f"{a}_most"), f"{a}_weight"
        return (
            f"const {t} {x} = {r.operand()};",
            # Called at every point, so that the loop can run on vectors.
            f"const {t} {weight} = {exp}({x} - {most});",
            f"{n(f'{a}_sum')} += {most} != {most} ? ({t})NAN : {x} == -INFINITY ? 0 : {weight};",
        )

    first = PartialWalk(
        top.walks[0].states, top.walks[0].at_point, ((f"{a}_most", t, lambda n: top.results(n)[0]),)
    )
    walks = (first, PartialWalk((_float_state(f"{a}_sum", r.to, "0", "+"),), second))
    return PartialReduction(
        walks, lambda n: (_rounded(n(f"{a}_most"), r.to), _rounded(n(f"{a}_sum"), r.to))
    )


def _rounded(value: str, to: DType) -> str:
    """A wide or partial float as a value of the result's type."""
    if to.is_low_precision:
        return converted(f"(float){value}", DType.F32, to)
    return f"({held(to)}){value}"


PARTIAL: Mapping[str, Callable[[Request], PartialReduction]] = {
    "sum": _added,
    "prod": _multiplied,
    "dot": _dot,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "any": _bits("|", "0", lambda r: f"{r.values[0]} != 0"),
    "all": _bits("&", "1", lambda r: f"{r.values[0]} != 0"),
    "xor_sum": _bits("^", "0", lambda r: r.operand()),
    "welford": lambda r: _spread(r, r.operand(), None, None),
    "welford_combine": lambda r: _spread(r, r.operand(0), r.operand(1), r.operand(2)),
    "online_softmax": _online_softmax,
    "argmax": _position("max"),
    "argmin": _position("min"),
}
"""Reductions that can be made of parts."""
