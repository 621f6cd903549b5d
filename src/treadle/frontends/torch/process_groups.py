"""Process groups of torch.distributed: who is in one, and whether ranks agree on their order."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import torch.distributed as dist

from treadle.ir.program import Program
from treadle.schedule.overlap.agreement import CollectiveOrder, collective_order

log = logging.getLogger(__name__)


def ranks_of_group(name: str) -> tuple[int, ...]:
    """The ranks of the group that torch knows by a name, numbered as in the job; () if unknown."""
    if not name or not dist.is_available() or not dist.is_initialized():
        return ()
    own: Any = dist.distributed_c10d
    try:
        return tuple(own.get_process_group_ranks(own._resolve_process_group(name)))
    except (AttributeError, KeyError, LookupError, RuntimeError, ValueError):
        return ()


def name_of_group(group: Any) -> str:
    """The name that torch knows a group by; graphs hold that name, or newer ones the group."""
    return group if isinstance(group, str) else str(getattr(group, "group_name", ""))


def agree_on_order(program: Program, asked: Program) -> None:
    """Raise COL008 if another rank made another order of the collectives that a graph asks for.

    Each rank leaves its order where the job keeps its addresses; the first one there is what the
    others compare with. Nobody waits for anybody: a rank that compiles nothing is not missed. It is
    filed under what the graph asks for, `asked`: ranks may have sent it together, or in parts.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    rank, questions = dist.get_rank(), dict(collective_order(asked).groups)
    for name, row in collective_order(program).groups:
        mine = CollectiveOrder(((name, row),))
        question = CollectiveOrder(((name, questions.get(name, row)),)).question
        known = _first_written(f"treadle/order/{question}", rank, mine.to_text())
        if known is not None:
            who, theirs = known
            mine.check_against(CollectiveOrder.parse(theirs), f"rank {rank}", f"rank {who}")


def sent_by(gm: Any) -> str:
    """The collectives of a graph of torch's, in order: the same on all ranks that run the same."""
    calls = [n.target for n in gm.graph.nodes if n.op == "call_function"]
    return " ".join(str(t) for t in calls if getattr(t, "namespace", "") == "_c10d_functional")


def agreed_on(what: str, about: str, mine: int) -> int:
    """The number that all ranks go by: what the first of them found; its own where they cannot."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return mine
    digest = hashlib.sha256(about.encode()).hexdigest()[:32]
    known = _first_written(f"treadle/{what}/{digest}", dist.get_rank(), repr(mine))
    return mine if known is None else int(known[1])


def _first_written(key: str, rank: int, text: str) -> tuple[int, str] | None:
    """Who wrote under a key first, and what; None, and a line in the log, if nobody can tell."""
    own: Any = dist.distributed_c10d
    try:
        store = own._get_default_store()
        # The same graph compiled again is another question: options may have changed in between.
        number = store.add(f"{key}/asked by {rank}", 1)
        found = store.compare_set(f"{key}/{number}", "", f"{rank} {text}").decode()
    except (AttributeError, NotImplementedError, RuntimeError, ValueError) as e:
        why = str(e).splitlines()[0] if str(e) else type(e).__name__
        log.warning("ranks cannot compare the order of their collectives: %s", why)
        return None
    who, _, theirs = found.partition(" ")
    return (int(who), theirs) if who.isdecimal() else None
