"""The pass runner: times every pass, journals it, checks what it delivers, explains failures.

A pass cannot forget to be checked and cannot lie about having changed something: `changed` is
whether it returned another object. After a pass that changed something:

    check 1   the border (inputs, outputs, sizes) is as it was; numerics are no looser than before;
              the rules of the stage hold
    check 2   also the dependence certificate against its input, and that the text reads back
    check 3   also the interpreter, before and after, on random data (needs numpy)

A failure names the pass and shows the program around the place, where the operation came from, and
a reproducer that `treadle replay` runs again.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from treadle.analysis.certificate import border_changes, certify, loosened
from treadle.core.context import Ctx
from treadle.core.errors import InputError, SpecError, TreadleError, UsageError, Violation
from treadle.core.journal import decision_line
from treadle.core.journal_schema import LEVEL_OF_AGREEMENT, LEVEL_OF_REFUSAL
from treadle.core.options import Options
from treadle.ir.numerics import EXACT
from treadle.ir.program import Program
from treadle.ir.spec import Stage, violations
from treadle.ir.text import parse_program, show_program
from treadle.kernel.allowed_steps import kernel_violations
from treadle.schedule.failure import PipelineError, describe_failure
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import SCHEDULING
from treadle.schedule.reproducer import write_reproducer


def run_pipeline(program: Program, ctx: Ctx, passes: Sequence[Pass] = SCHEDULING) -> Program:
    """The program after the passes; raises PipelineError with a reproducer if one fails."""
    bad: list[Violation] = []
    if ctx.options.check >= 1:
        bad = violations(program) or list(kernel_violations(program))
    if bad:
        raise SpecError(f"program {program.name} is not sound before the first pass", bad)
    changed: set[str] = set()
    if ctx.given is None:
        ctx = replace(ctx, given=program)
    for number, step in enumerate(passes, 1):
        if ctx.options.stop_after is not None and number > ctx.options.stop_after:
            break
        if step.only_after is not None and step.only_after not in changed:
            continue
        new = _run_one(number, step, program, ctx, passes)
        if new is not program:
            changed.add(step.name)
        program = new
    return program


def _run_one(
    number: int, step: Pass, program: Program, ctx: Ctx, passes: Sequence[Pass]
) -> Program:
    start, known = time.perf_counter(), len(ctx.journal)
    try:
        new = step.run(program, ctx)
        if not isinstance(new, Program):
            raise TypeError(f"it returned {type(new).__name__}, not a Program")
    except (UsageError, InputError):
        raise  # an option or a calibration file is wrong, not the pass
    except Exception as e:  # a bug in a pass must not lose the program that shows it
        raise _failed("PIPE002", number, step, program, program, ctx, passes, [], e) from e
    seconds = time.perf_counter() - start
    changed = new is not program
    said = {} if new.numerics == EXACT else {"numerics": str(new.numerics)}
    ctx.journal.emit(
        "pass",
        name=step.name,
        changed=changed,
        seconds=seconds,
        ops_before=len(program.ops),
        ops_after=len(new.ops),
        **said,
    )
    if ctx.options.debug >= 2:
        _print_line(number, step, program, new, seconds)
    _print_decisions(known, ctx)
    if changed:
        bad = check(
            program,
            new,
            step.after,
            ctx.options.check,
            ctx.options.seed,
            collectives_may_move=step.moves_collectives,
            rounds=step.rounds,
        )
        if bad:
            raise _failed("PIPE001", number, step, program, new, ctx, passes, bad, None)
        _dump(number, step, new, ctx)
    return new


def check(
    before: Program,
    after: Program,
    stage: Stage,
    level: int,
    seed: int = 0,
    *,
    collectives_may_move: bool = False,
    rounds: bool = False,
) -> list[Violation]:
    """What is wrong with `after`, looked at as closely as `level` says."""
    bad: list[Violation] = []
    if level >= 1:
        bad = [*border_changes(before, after), *loosened(before, after), *violations(after, stage)]
        bad = bad or list(kernel_violations(after))
    if not bad and level >= 2:
        bad = certify(before, after, collectives_may_move=collectives_may_move)
        if not bad and parse_program(show_program(after)) != after:
            bad = [Violation("CERT003", "the text of the program reads back as another program")]
    if not bad and level >= 3:
        from treadle.schedule.translation import same_meaning

        bad = same_meaning(before, after, seed, rounds=rounds)
    return bad


def _failed(
    code: str,
    number: int,
    step: Pass,
    before: Program,
    after: Program,
    ctx: Ctx,
    passes: Sequence[Pass],
    bad: list[Violation],
    error: Exception | None,
) -> PipelineError:
    what = f"{type(error).__name__}: {error}" if error is not None else str(bad[0])
    names = [p.name for p in passes[number - 1 :]]
    folder = ctx.options.dump or "."
    notes = describe_failure(step, [p.name for p in passes[: number - 1]], after, bad, error)
    again = None
    try:
        file = write_reproducer(folder, before, names, _from(number, ctx.options), what)
        again = f"reproduce with: treadle replay {file}"
        ctx.journal.emit("artifact", name="reproducer", path=file)
    except OSError as e:
        notes.append(f"no reproducer: {folder} cannot be written ({e.strerror})")
    if isinstance(error, TreadleError) and error.code is not None:
        notes.append(f"cause: {error.code}, see treadle explain {error.code}")
    head = "raised" if error is not None else f"broke stage {step.after.value}"
    message = f"pass '{step.name}' (number {number}) {head}: {what}"
    return PipelineError(message, code, notes, bad, again)


def _from(number: int, options: Options) -> Options:
    """The options for a run that begins with pass `number`: fewer passes are left to run."""
    if options.stop_after is None:
        return options
    return options.with_(stop_after=max(0, options.stop_after - (number - 1)))


def _print_line(number: int, step: Pass, old: Program, new: Program, seconds: float) -> None:
    word = "changed  " if new is not old else "unchanged"
    counts = f"{len(old.ops)} -> {len(new.ops)} ops"
    line = f"{number:03d} {step.name:<20} {word} {counts:<20} {seconds * 1e3:.1f} ms"
    print(line, file=sys.stderr)


def _print_decisions(known: int, ctx: Ctx) -> None:
    """Print what was decided since the journal had `known` events: agreements, then refusals."""
    if ctx.options.debug < LEVEL_OF_AGREEMENT:
        return
    for event in islice(ctx.journal.events(), known, None):
        needed = LEVEL_OF_AGREEMENT if event.get("ok") else LEVEL_OF_REFUSAL
        if event["kind"] == "verdict" and ctx.options.debug >= needed:
            print(f"    {decision_line(event)}", file=sys.stderr)


def _dump(number: int, step: Pass, program: Program, ctx: Ctx) -> None:
    options = ctx.options
    if options.debug >= 5:
        print(show_program(program), file=sys.stderr)
    if options.dump is None:
        return
    if options.dump_pass is not None and not re.search(options.dump_pass, step.name):
        return
    os.makedirs(options.dump, exist_ok=True)
    name = f"{number:03d}.after_{step.name.replace('-', '_')}.txt"
    path = os.path.join(options.dump, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(show_program(program))
    ctx.journal.emit("artifact", name=name, path=path)
