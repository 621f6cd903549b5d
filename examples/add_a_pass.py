"""Run a pass of your own among those of Treadle, checked like they are.

python examples/add_a_pass.py
"""

from __future__ import annotations

from treadle.analysis.accounting import OURS, figures
from treadle.analysis.cost import cost_model
from treadle.analysis.deps import dependences
from treadle.core.context import Ctx, journal_for
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.ir.spec import Stage
from treadle.lab.demo_program import demo_program
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import SCHEDULING
from treadle.schedule.pipeline import run_pipeline


def latest_first(program: Program, ctx: Ctx) -> Program:
    """Put an operation before its neighbour if nothing makes it follow: the last come first."""
    order = list(range(len(program.ops)))
    must = set(dependences(program).edges)
    changed = False
    for k in range(len(order) - 1):
        a, b = order[k], order[k + 1]
        if (a, b) not in must:
            order[k], order[k + 1] = b, a
            changed = True
    if not changed:
        return program  # the very object: that is how the runner knows
    ctx.journal.emit("step", action="latest-first", args=[program.ops[n].name for n in order])
    return program.with_ops(tuple(program.ops[n] for n in order))


def main() -> None:
    program = demo_program()
    options = Options(check=2)  # after each pass: rules, dependences, and that the text reads back
    ctx = Ctx(options, cost_model(program, options), journal_for(options))
    mine = Pass("latest-first", latest_first, Stage.GROUPED)
    scheduled = run_pipeline(program, ctx, (mine, *SCHEDULING))
    for event in ctx.journal.events("pass"):
        print(f"{event['name']:<20} {'changed' if event['changed'] else 'unchanged'}")
    before, after = figures(program, OURS), figures(scheduled, OURS)
    print(f"{before.kernels} kernels became {after.kernels}, {after.bytes_moved:,} bytes moved")


if __name__ == "__main__":
    main()
