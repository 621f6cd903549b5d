"""Index algebra against sympy, on the index expressions of seed 001.

  python bench/index_algebra.py [--save]

Both sides do the same work on the same expressions, each as often as it occurs in the dump:

  build     from an operation tree, bottom up
  simplify  under the loop extents of its operation; sympy's side is what Inductor calls for it
  compare   each expression with every other one of its operation
  print     as text

sympy gets torch's FloorDiv, ModularIndexing, Min and Max, as in Inductor. Each run starts as a
compiler does, with nothing remembered: sympy's caches are cleared, our intern table only holds what
is in use. `warm` repeats it without clearing sympy's caches. Symbols are made once on both sides.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from common import cpu_seconds, parser, report, seed_file
from treadle.index import Facts, const, floordiv, maximum, minimum, mod, show_sympy
from treadle.index.text import loop_or_indirect

Code = list[tuple[str, Any]]


class Operation(NamedTuple):
    """The index expressions of one loop body in postfix form, and its loop extents."""

    expressions: list[Code]
    ranges: dict[str, int]


def read_operations(text: str) -> list[Operation]:
    """All loop bodies of an Inductor dump; expressions are parsed as trees, never evaluated."""
    found = []
    for block in re.split(r"^class \w+_loop_body:$", text, flags=re.M)[1:]:
        ranges = dict(re.findall(r"(\w+): (\d+)", block.split("\n")[1]))
        lines = re.findall(r"^    index\d+ = (.*)$", block, flags=re.M)
        codes = [postfix(ast.parse(line, mode="eval").body) for line in lines]
        found.append(Operation(codes, {v: int(n) for v, n in ranges.items()}))
    return found


OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}


def postfix(tree: ast.expr) -> Code:
    """The tree as a list of instructions, so that walking it costs both sides next to nothing."""
    if isinstance(tree, ast.Name):
        return [("name", tree.id)]
    if isinstance(tree, ast.Constant):
        return [("number", tree.value)]
    if isinstance(tree, ast.UnaryOp):
        return [*postfix(tree.operand), ("number", -1), ("*", None)]
    if isinstance(tree, ast.Call):
        args = [step for x in tree.args for step in postfix(x)]
        return [*args, ("call", (tree.func.id, len(tree.args)))]
    assert isinstance(tree, ast.BinOp)
    return [*postfix(tree.left), *postfix(tree.right), (OPERATORS[type(tree.op)], None)]


class Algebra(NamedTuple):
    """One side of the comparison."""

    symbol: Callable[[str], Any]
    number: Callable[[int], Any]
    functions: dict[str, Callable[..., Any]]
    floordiv: Callable[[Any, Any], Any]
    simplifier: Callable[[dict[Any, int]], Callable[[Any], Any]]
    show: Callable[[Any], str]


def build(code: Code, a: Algebra, symbols: dict[str, Any]) -> Any:
    stack: list[Any] = []
    for op, x in code:
        if op == "name":
            stack.append(symbols[x])
        elif op == "number":
            stack.append(x)
        elif op == "call":
            name, count = x
            args = stack[-count:]
            stack[-count:] = [a.functions[name](*args)]
        else:
            right = stack.pop()
            if op == "+":
                stack[-1] = stack[-1] + right
            elif op == "*":
                stack[-1] = stack[-1] * right
            elif op == "-":
                stack[-1] = stack[-1] - right
            else:
                stack[-1] = a.floordiv(stack[-1], right)
    return a.number(stack[0]) if isinstance(stack[0], int) else stack[0]


def ours() -> Algebra:
    functions = {"Min": minimum, "Max": maximum, "FloorDiv": floordiv}
    functions["ModularIndexing"] = lambda x, d, m: mod(floordiv(x, d), m)
    return Algebra(
        symbol=loop_or_indirect,
        number=const,
        functions=functions,
        floordiv=floordiv,
        simplifier=lambda ranges: Facts(ranges).simplify,
        show=show_sympy,
    )


def sympys() -> Algebra:
    import sympy
    from torch._inductor.sizevars import SizeVarAllocator
    from torch.utils._sympy.functions import FloorDiv, Max, Min, ModularIndexing

    def simplifier(ranges: dict[Any, int]) -> Callable[[Any], Any]:
        allocator = SizeVarAllocator()
        return lambda e: allocator._simplify_with_ranges(e, ranges)

    return Algebra(
        symbol=lambda name: sympy.Symbol(name, integer=True, nonnegative=True),
        number=sympy.Integer,
        functions={
            "Min": Min,
            "Max": Max,
            "FloorDiv": FloorDiv,
            "ModularIndexing": ModularIndexing,
        },
        floordiv=FloorDiv,
        simplifier=simplifier,
        show=str,
    )


def forget() -> None:
    from sympy.core.cache import clear_cache

    clear_cache()


def measure(
    operations: list[Operation], a: Algebra, before: Callable[[], None]
) -> dict[str, float]:
    """CPU seconds of each phase; `before` runs untimed ahead of every repetition."""
    names = {x for op in operations for code in op.expressions for k, x in code if k == "name"}
    symbols = {n: a.symbol(n) for n in names}

    def build_all() -> list[list[Any]]:
        return [[build(t, a, symbols) for t in op.expressions] for op in operations]

    rows, again = build_all(), build_all()
    extents = [{symbols[v]: n for v, n in op.ranges.items() if v in symbols} for op in operations]
    both = [x + y for x, y in zip(rows, again, strict=True)]

    def simplify_all() -> None:
        for row, ranges in zip(rows, extents, strict=True):
            simplify = a.simplifier(ranges)
            for e in row:
                simplify(e)

    def compare_all() -> int:
        return sum(x == y for row in both for x in row for y in row)

    def show_all() -> None:
        for row in rows:
            for e in row:
                a.show(e)

    phases = {"build": build_all, "simplify": simplify_all, "compare": compare_all}
    phases["print"] = show_all
    return {name: cpu_seconds(work, 5, before) for name, work in phases.items()}


def main() -> None:
    args = parser(__doc__).parse_args()
    seed = seed_file("001")
    if seed is None:
        print("seed 001 is not here: nothing measured")
        return
    operations = read_operations(seed.read_text())
    mine = measure(operations, ours(), lambda: None)
    data: dict[str, Any] = {
        "expressions": sum(len(op.expressions) for op in operations),
        "operations": len(operations),
        "ours_cpu_s": rounded(mine),
    }
    for label, before in (("cold", forget), ("warm", lambda: None)):
        theirs = measure(operations, sympys(), before)
        data[label] = {
            "sympy_cpu_s": rounded(theirs),
            "times_faster": {k: round(theirs[k] / mine[k], 1) for k in mine},
            "times_faster_total": round(sum(theirs.values()) / sum(mine.values()), 1),
        }
    report("index_algebra", data, args.save)


def rounded(times: dict[str, float]) -> dict[str, float]:
    return {k: round(v, 6) for k, v in times.items()}


if __name__ == "__main__":
    main()
