"""Element types of the values in a body, inferred from the table of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from treadle.ir.body import Body, Stmt
from treadle.ir.ops import REDUCTIONS
from treadle.ir.types import Buffer, DType, promote

ValueType: TypeAlias = "DType | tuple[DType, ...] | None"


class BodyTypeError(ValueError):
    """A value has a type its operation does not accept; `number` is the statement's position."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


ACCEPTS: Mapping[str, Callable[[DType], bool]] = {
    "any": lambda d: True,
    "number": lambda d: d is not DType.BOOL,
    "float": lambda d: d.is_float,
    "int": lambda d: d.is_int,
    "whole": lambda d: d.is_int or d is DType.BOOL,
    "bool": lambda d: d is DType.BOOL,
}
ACCEPTS_WORDS: Mapping[str, str] = {
    "any": "any element type",
    "number": "a number, not bool",
    "float": "a floating point type",
    "int": "an integer type",
    "whole": "an integer type or bool",
    "bool": "bool",
}


def promote_all(types: list[DType]) -> DType:
    """The common type of one or more."""
    result = types[0]
    for t in types[1:]:
        result = promote(result, t)
    return result


def as_float(t: DType) -> DType:
    """The type in which a floating point function of `t` is computed."""
    return t if t.is_float else DType.F32


class TypeScope:
    """Types of the values so far; grows statement by statement, regions included."""

    __slots__ = ("buffers", "params", "position", "values", "yields")

    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.buffers = buffers
        self.values: list[ValueType] = []
        self.params: list[tuple[DType, ...]] = []
        self.yields: list[DType] = []
        self.position = 0

    def add(self, stmt: Stmt) -> int:
        """Type a statement, its region included; gives the number of its value (or the next)."""
        number, finish = self.open(stmt)
        if stmt.region:
            for inner in stmt.region:
                self.add(inner)
            last = stmt.region[-1]
            if last.op != "yield":
                raise BodyTypeError(self.position, f"the region of {stmt.op} must end with yield")
            finish(last.args)
        return number

    def open(self, stmt: Stmt) -> tuple[int, Callable[[tuple[int, ...]], None]]:
        """Type a statement; if it owns a region, call the second result with what it yields."""
        definition, number, here = stmt.definition, len(self.values), self.position
        types = [] if stmt.op == "get" else [self.scalar(a) for a in stmt.args]
        for t in types:
            if not ACCEPTS[definition.accepts](t):
                words = ACCEPTS_WORDS[definition.accepts]
                raise BodyTypeError(here, f"{stmt.op} takes {words}, not {t}")
        if definition.produces:
            self.values.append(None)
        self.position += 1
        in_region = definition.has_region and (
            stmt.op != "scan" or stmt.attr("combine") == "region"
        )
        if not in_region:
            if definition.produces:
                self.values[number] = RESULTS[definition.result](stmt, types, self, here)
            return number, lambda yielded: None
        self.params.append(tuple(types))

        def finish(yielded: tuple[int, ...]) -> None:
            self.params.pop()
            self.yields = [self.scalar(a) for a in yielded]
            self.values[number] = RESULTS[definition.result](stmt, types, self, here)

        return number, finish

    def scalar(self, number: int) -> DType:
        """The type of a single value."""
        found = self.values[number]
        if isinstance(found, DType):
            return found
        what = "several results; take one with get" if found is not None else "no value"
        raise BodyTypeError(self.position, f"%{number} has {what}")


def infer_types(body: Body, buffers: Mapping[str, Buffer]) -> list[ValueType]:
    """The type of each value by number; tuples for statements with several results."""
    scope = TypeScope(buffers)
    for stmt in body.stmts:
        scope.add(stmt)
    return scope.values


def _result_own(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    return OWN_RESULTS[stmt.op](stmt, types, scope, position)


def _result_attr(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    given = stmt.attr("dtype")
    assert isinstance(given, DType)
    return given


RESULTS: Mapping[str, Callable[[Stmt, list[DType], TypeScope, int], ValueType]] = {
    "same": lambda stmt, types, scope, at: promote_all(types),
    "float": lambda stmt, types, scope, at: as_float(promote_all(types)),
    "bool": lambda stmt, types, scope, at: DType.BOOL,
    "first": lambda stmt, types, scope, at: as_float(types[0]),
    "attr": _result_attr,
    "own": _result_own,
}


def _of_load(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    buffer = scope.buffers.get(stmt.buffer)
    if buffer is None:
        raise BodyTypeError(position, f"load from the unknown buffer {stmt.buffer}")
    return buffer.dtype


def _of_where(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    if types[0] is not DType.BOOL:
        raise BodyTypeError(position, f"where takes bool as its condition, not {types[0]}")
    return promote(types[1], types[2])


def reduced_type(kind: str, value: DType) -> ValueType:
    """The type a reduction of values of type `value` has unless told otherwise."""
    if kind in ("any", "all"):
        return DType.BOOL
    if kind in ("argmax", "argmin"):
        return DType.I64
    if kind in ("sum", "prod", "dot") and value is DType.BOOL:
        return DType.I64
    count = REDUCTIONS[kind].results
    return value if count == 1 else (value,) * count


def _of_reduce(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    kind, given = stmt.attr("kind"), stmt.attr("dtype")
    definition = REDUCTIONS.get(str(kind))
    if definition is None:
        raise BodyTypeError(position, f"unknown reduction '{kind}'")
    if len(types) != definition.operands:
        wanted = definition.operands
        raise BodyTypeError(position, f"reduce {kind} takes {wanted} operands, not {len(types)}")
    for t in types:
        if not ACCEPTS[definition.accepts](t):
            words = ACCEPTS_WORDS[definition.accepts]
            raise BodyTypeError(position, f"reduce {kind} takes {words}, not {t}")
    if isinstance(given, DType) and kind not in ("any", "all", "argmax", "argmin"):
        return given if definition.results == 1 else (given,) * definition.results
    return reduced_type(str(kind), promote_all(types))


def _of_scan(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    if stmt.attr("combine") == "region" and scope.yields != types:
        shown = ", ".join(map(str, scope.yields))
        raise BodyTypeError(position, f"the scan region yields ({shown}), not its operand types")
    return types[0] if len(types) == 1 else tuple(types)


def _of_get(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    source, at = scope.values[stmt.args[0]], stmt.attr("position")
    assert isinstance(at, int)
    if not isinstance(source, tuple) or not 0 <= at < len(source):
        raise BodyTypeError(position, f"%{stmt.args[0]} has no result number {at}")
    return source[at]


def _of_masked(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    if len(scope.yields) != 1:
        raise BodyTypeError(position, "the region of masked must yield one value")
    return scope.yields[0]


def _of_param(stmt: Stmt, types: list[DType], scope: TypeScope, position: int) -> ValueType:
    at = stmt.attr("position")
    assert isinstance(at, int)
    params = scope.params[-1] if scope.params else ()
    # A scan's region takes two partial results: all first ones, then all second ones.
    if not 0 <= at < 2 * len(params):
        raise BodyTypeError(position, f"the region has no parameter {at}")
    return params[at % len(params)]


OWN_RESULTS: Mapping[str, Callable[[Stmt, list[DType], TypeScope, int], ValueType]] = {
    "load": _of_load,
    "where": _of_where,
    "frexp": lambda stmt, types, scope, at: (types[0], DType.I32),
    "indirect": lambda stmt, types, scope, at: DType.I64,
    "reduce": _of_reduce,
    "reduce_part": _of_reduce,
    "scan": _of_scan,
    "sort": lambda stmt, types, scope, at: types[0] if len(types) == 1 else tuple(types),
    "get": _of_get,
    "masked": _of_masked,
    "param": _of_param,
}
