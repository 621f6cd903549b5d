"""What a saved program of torch.export assumes about sizes: Python text, read and never evaluated.

L['x'].size()[0] % 2 == 0        L['x'].size()[0] == L['y'].size()[0]
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from treadle.codegen.package_c.tables import Constraint
from treadle.core.errors import UsageError
from treadle.index import Expr, as_expr, floordiv, mod

REFUSED = "PKG003"
ShapeOf = Callable[[str], "tuple[Expr, ...] | None"]
"""The sizes of an input by its name."""
RELATIONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
OPERATIONS: Mapping[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


def read_guards(lines: Sequence[str], shape_of: ShapeOf) -> Iterator[Constraint]:
    """The relations between sizes that some lines state; one that cannot be read is refused."""
    for line in lines:
        try:
            yield from _relations(ast.parse(line, mode="eval").body, shape_of)
        except (ValueError, SyntaxError, RecursionError):
            message = f"what the program assumes about sizes cannot be checked in C: {line}"
            raise UsageError(message, code=REFUSED) from None


def _relations(e: ast.expr, shape_of: ShapeOf) -> Iterator[Constraint]:
    if isinstance(e, ast.BoolOp) and isinstance(e.op, ast.And):
        for value in e.values:
            yield from _relations(value, shape_of)
        return
    if not isinstance(e, ast.Compare):
        raise ValueError
    values = [_number(one, shape_of) for one in (e.left, *e.comparators)]
    for left, op, right in zip(values, e.ops, values[1:], strict=False):
        relation = RELATIONS.get(type(op))
        if relation is None:
            raise ValueError
        yield Constraint(left, relation, right)


def _number(e: ast.expr, shape_of: ShapeOf) -> Expr:
    if isinstance(e, ast.Constant) and type(e.value) is int:
        return as_expr(e.value)
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        return as_expr(0) - _number(e.operand, shape_of)
    if isinstance(e, ast.BinOp) and type(e.op) in OPERATIONS:
        return OPERATIONS[type(e.op)](_number(e.left, shape_of), _number(e.right, shape_of))
    if isinstance(e, ast.Subscript):
        return _size(e, shape_of)
    raise ValueError


def _size(e: ast.Subscript, shape_of: ShapeOf) -> Expr:
    """A dimension of an input: L['x'].size()[0]."""
    match e:
        case ast.Subscript(
            value=ast.Call(
                func=ast.Attribute(
                    value=ast.Subscript(
                        value=ast.Name(id="L"), slice=ast.Constant(value=str(name))
                    ),
                    attr="size",
                ),
                args=[],
            ),
            slice=ast.Constant(value=int(dim)),
        ):
            shape = shape_of(name)
            if shape is not None and 0 <= dim < len(shape):
                return shape[dim]
    raise ValueError
