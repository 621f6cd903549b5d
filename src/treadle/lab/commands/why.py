"""`treadle why FILE A B`: why one operation must follow another, or that nothing orders them."""

from __future__ import annotations

import argparse

from treadle.analysis.deps import Dependences, dependences
from treadle.core.errors import UsageError
from treadle.core.suggest import suggestion_notes
from treadle.ir.program import Program
from treadle.lab.files import read_sound_program
from treadle.lab.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `why`."""
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("first", metavar="A")
    parser.add_argument("second", metavar="B")


def run(args: argparse.Namespace) -> int:
    """Print every dependence between the two, direct or along the shortest chain."""
    program = read_sound_program(args.file)
    deps = dependences(program)
    ends = [_leaves(program, name) for name in (args.first, args.second)]
    if args.first == args.second:
        raise UsageError(f"'{args.first}' is one operation; name two different ones")
    direct = [
        deps.explain(d) for a in ends[0] for b in ends[1] if a != b for d in deps.between(a, b)
    ]
    chain = [] if direct else _chain(deps, *ends)
    lines = direct or chain
    if not lines:
        lines = [f"nothing orders {args.first} and {args.second}: they may run in any order"]
    elif chain:
        lines = [f"no direct dependence; a chain of {len(chain)}:", *chain]
    data = {"direct": direct, "chain": chain, "ordered": bool(direct or chain)}
    emit(args.json, data, lines)
    return 0


def _leaves(program: Program, name: str) -> list[str]:
    op = program.op_by_name.get(name)
    if op is None:
        notes = suggestion_notes(name, list(program.op_by_name), "operations")
        raise UsageError(f"there is no operation '{name}' in the program", notes=notes)
    return [leaf.name for leaf in op.leaves]


def _chain(deps: Dependences, first: list[str], second: list[str]) -> list[str]:
    """The shortest chain of dependences from one to the other, whichever direction it has."""
    for start, goal in ((first, second), (second, first)):
        goals = {deps.position[n] for n in goal}
        came: dict[int, int] = {}
        queue = [deps.position[n] for n in start]
        seen = set(queue)
        for at in queue:
            for d in deps.out_of[at]:
                if d.target in seen:
                    continue
                seen.add(d.target)
                came[d.target] = at
                queue.append(d.target)
                if d.target in goals:
                    return _unwind(deps, came, d.target)
    return []


def _unwind(deps: Dependences, came: dict[int, int], at: int) -> list[str]:
    lines = []
    while at in came:
        source = came[at]
        found = next(d for d in deps.out_of[source] if d.target == at)
        lines.append(deps.explain(found))
        at = source
    return lines[::-1]
