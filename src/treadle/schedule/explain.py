"""Why two operations are, or are not, one kernel: every question that fusion asks, with its answer.

The questions are asked of the two as they stand before fusion, and of the kernels they ended up in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.verdict import Verdict, explain_rules, no, yes
from treadle.ir.program import Program
from treadle.schedule.choose import Search
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import SCHEDULING
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.policy import policy_of
from treadle.schedule.profit import is_faster, worth_in_memory
from treadle.schedule.rules.chain import rules_for


@dataclass(frozen=True)
class PairStory:
    """What happened to two operations."""

    kernels: tuple[str, str]
    """The kernels they are in after scheduling; the same name if they are one."""
    gone: tuple[str, ...]
    """Which of the two are not there any more, and why."""
    before: tuple[tuple[str, Verdict], ...]
    """Each rule's answer about the two alone."""
    decided: tuple[tuple[tuple[str, str], Verdict], ...]
    """What the journal says about kernels that the two were in, in order."""
    scheduled: Program
    """The schedule this is told of."""

    @property
    def are_one(self) -> bool:
        """Whether they ended up in one kernel."""
        return not self.gone and self.kernels[0] == self.kernels[1]

    def to_json(self) -> dict[str, object]:
        """The story as plain data."""
        return {
            "one_kernel": self.are_one,
            "kernels": list(self.kernels),
            "gone": list(self.gone),
            "rules": [{"rule": rule, **verdict.to_dict()} for rule, verdict in self.before],
            "decided": [{"ops": list(ops), **verdict.to_dict()} for ops, verdict in self.decided],
        }


def explain_pair(program: Program, ctx: Ctx, a: str, b: str) -> PairStory:
    """The story of two leaf operations under the options of `ctx`."""
    scheduled = run_pipeline(program, ctx)
    # In one go, for passes look at what others did before; then once more to where fusion begins.
    prepared = run_pipeline(program, replace(ctx, journal=Journal()), _until("fuse"))
    kernel_of = {leaf.name: op.name for op in scheduled.ops for leaf in op.leaves}
    gone = tuple(_fate(n, ctx) for n in (a, b) if n not in kernel_of)
    known = {leaf.name for leaf in prepared.leaves}
    before = _asked(prepared, ctx, a, b) if a in known and b in known else ()
    mates = [_members(scheduled, kernel_of.get(n), n) for n in (a, b)]
    return PairStory(
        kernels=(kernel_of.get(a, ""), kernel_of.get(b, "")),
        gone=gone,
        before=tuple(before),
        decided=tuple(_from_journal(ctx, mates)),
        scheduled=scheduled,
    )


def _fate(name: str, ctx: Ctx) -> str:
    """What became of an operation that is not there any more."""
    for event in ctx.journal.events("step"):
        if event["args"][:1] == [name] and event["action"] == "merge-duplicate":
            return f"{name} (computed by {event['args'][1]}, which does the same)"
    for event in ctx.journal.events("verdict"):
        if event["question"] == "recompute" and event["ok"] and event["ops"][0] == name:
            return f"{name} (computed again where it is read)"
    return f"{name} (nobody needs it)"


def _until(name: str) -> Sequence[Pass]:
    names = [p.name for p in SCHEDULING]
    return SCHEDULING[: names.index(name)]


def _asked(program: Program, ctx: Ctx, a: str, b: str) -> list[tuple[str, Verdict]]:
    search = Search(program, ctx, policy_of(ctx))
    place = search.deps.position
    x, y = search.board.group_of(place[a]), search.board.group_of(place[b])
    if x == y:
        return []
    first, second = (x, y) if search.board.before(x, y) else (y, x)
    one, other = search.kernels[first], search.kernels[second]
    pair = search.pair(one, other)
    found: list[tuple[str, Verdict]] = []
    for rule in rules_for(pair):
        answer = explain_rules((rule,), pair) if pair.space is not None or not found else []
        code = answer[0][1].code if answer else ""
        if code == "FUS008" and search.policy.reindex and (changed := search.align(pair)):
            pair = changed.pair  # as the search does it
            answer = [(answer[0][0], yes(walked="in the other's order"))]
        found.extend(answer)
        if code == "FUS001":
            return found  # all other questions are about loops
        if code == "FUS004":
            break  # without a common space the later questions have no meaning
    saved = search.score(first, second)
    found.append(("saves_bytes", yes(bytes=saved) if saved > 0 else no("FUS012", bytes=saved)))
    found.append(("is_faster", is_faster(pair, saved)))
    found.append(("closes_no_cycle", search.board.acyclic(x, y)))
    if found[-1][1]:
        search.board.pays = True
        worth = worth_in_memory(saved, ctx.cost.machine(one.device))
        placed = search.board.place(first, second, worth=worth)
        found.append(("has_a_place_within_the_peak", placed))
    return found


def _members(program: Program, kernel: str | None, name: str) -> set[str]:
    if kernel is None:
        return {name}
    return {leaf.name for leaf in program.op_by_name[kernel].leaves}


def _from_journal(ctx: Ctx, mates: list[set[str]]) -> list[tuple[tuple[str, str], Verdict]]:
    """Decisions about a member of the one's kernel and a member of the other's."""
    found = []
    for event in ctx.journal.events("verdict"):
        if event["question"] not in ("recompute", "fuse", "mix", "combine"):
            continue
        x, *others = event["ops"]
        if not others:  # what is decided of one kernel alone bears on any pair with it
            others = [min(mates[1 - k]) for k in (0, 1) if x in mates[k] and x not in mates[1 - k]]
        if not others:
            continue
        y = others[0]
        if (x in mates[0] and y in mates[1]) or (x in mates[1] and y in mates[0]):
            found.append(((x, y), Verdict(event["ok"], event["code"], event["facts"])))
    return found
