"""`treadle why FILE A B`: why one operation must follow another, and why they are (not) one kernel.

The answer in one sentence first. Then the dependences, which come from the program, and what comes
from scheduling it here: each rule's answer about the two alone, then what was decided about the
kernels they were in.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.deps import Dependences, dependences
from treadle.core.errors import UsageError
from treadle.core.suggest import suggestion_notes
from treadle.frontends.inductor_dump import unpacked
from treadle.ir.effects import effects
from treadle.ir.program import Program
from treadle.lab.given_or_new import choose, kept_line
from treadle.lab.help import PROGRAM_FILE
from treadle.lab.loading import load_program
from treadle.lab.output import emit
from treadle.lab.scheduling import context_for, options_for
from treadle.lab.why_answer import answer_lines
from treadle.schedule.explain import PairStory, explain_pair
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.policy import POLICIES

MOST_DECIDED = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `why`."""
    parser.add_argument("file", metavar="FILE", help=PROGRAM_FILE)
    parser.add_argument("first", metavar="A", help="an operation of the program, by name")
    parser.add_argument("second", metavar="B", help="another operation, or a group")
    parser.add_argument("--policy", choices=sorted(POLICIES), help="what fusion may do and cost")


def run(args: argparse.Namespace) -> int:
    """Print the answer, every dependence (direct or the shortest chain), and what rules said."""
    program, loaded = load_program(args.file)
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
    data: dict[str, object] = {"direct": direct, "chain": chain, "ordered": bool(direct or chain)}
    if all(len(end) == 1 for end in ends):
        options = options_for(loaded.text, args.policy)
        start = unpacked(program) if loaded.is_dump else program
        ctx = context_for(start, options, program)
        story = explain_pair(start, ctx, ends[0][0], ends[1][0])
        built = run_pipeline(story.scheduled, ctx, KERNELS)
        accounting = ACCOUNTINGS[options.accounting]
        choice = choose(program, story.scheduled, built, accounting)
        data["fusion"] = story.to_json()
        if direct and any(verdict.code == "FUS007" for _, verdict in story.before):
            lines = [*lines, "but not any more when fusion began: a pass had made them independent"]
        data["kept_given"] = choice.kept_given
        lines = [
            *answer_lines(story, [args.first, args.second]),
            "",
            *lines,
            "",
            *_told(story, args.first, args.second),
        ]
        lines += [kept_line(choice)] if choice.kept_given else []
    emit(args.json, data, lines)
    return 0


def _told(story: PairStory, a: str, b: str) -> Iterator[str]:
    if story.before:
        yield f"asked about {a} and {b} alone, before anything was fused:"
        yield from (f"  {rule}: {verdict}" for rule, verdict in story.before)
    if story.decided:
        yield "decided about the kernels they were in, in order:"
        shown = story.decided[:MOST_DECIDED]
        yield from (f"  {x} and {y}: {verdict}" for (x, y), verdict in shown)
        if len(story.decided) > MOST_DECIDED:
            yield f"  ... and {len(story.decided) - MOST_DECIDED} more"


def _leaves(program: Program, name: str) -> list[str]:
    op = program.op_by_name.get(name)
    if op is None and name in program.by_name:
        makers = [o.name for o in program.leaves if name in effects(o).writes]
        made = f"made by {makers[0]}" if makers else "an input"
        raise UsageError(f"'{name}' is a buffer, {made}; name an operation")
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
