"""Rules that look at what the two kernels are: kind, device, size, space."""

from __future__ import annotations

from treadle.core.verdict import YES, Verdict, no
from treadle.schedule.rules.pair import Pair


def both_are_loops(p: Pair) -> Verdict:
    """FUS001: loops are fused, and loops with a template; other calls are kernels of their own."""
    for kernel in (p.first, p.second):
        if kernel.fixed:
            op = p.program.leaves[kernel.members[0]]
            return no("FUS001", operation=op.name, kind=type(op).__name__)
    return YES


def on_one_device(p: Pair) -> Verdict:
    """FUS002: a kernel runs on one device."""
    if p.first.device == p.second.device:
        return YES
    return no("FUS002", left=p.first.device, right=p.second.device)


def not_too_many_members(p: Pair) -> Verdict:
    """FUS003: the policy limits how many operations one kernel may hold."""
    count = p.first.leaves + p.second.leaves
    if count <= p.policy.max_members:
        return YES
    return no("FUS003", members=count, limit=p.policy.max_members)


def spaces_agree(p: Pair) -> Verdict:
    """FUS004: the same iteration space, or a pointwise one at a level of the other's."""
    if p.space is not None and len(p.space.levels) <= p.policy.max_levels:
        return YES
    return no("FUS004", left=str(p.first.space), right=str(p.second.space))


def reduces_at_one_level(p: Pair) -> Verdict:
    """FUS015: what scans, sorts or goes over rows twice does so over all inner loops.

    Programs of a GPU scan rows that are one tile: beside them nothing goes over other rows.
    """
    assert p.space is not None, "rules of form are asked after a common space was found"
    for kernel in (p.first, p.second):
        wanted = (p.space.outer, p.space.total)
        if kernel.combines is not None and kernel.combines != wanted and kernel.call is None:
            points, steps = kernel.combines
            return no("FUS015", space=str(p.space), points=str(points), steps=str(steps))
    if (p.first.scans or p.second.scans) and len(p.space.levels) > 2 and p.is_on_gpu:
        return no("FUS015", space=str(p.space), device=p.first.device)
    return YES


def adds_as_often(p: Pair) -> Verdict:
    """FUS016: what adds the same to a place at several points still does so at each of them."""
    assert p.space is not None, "rules of form are asked after a common space was found"
    for kernel in (p.first, p.second):
        if kernel.repeats is not None and kernel.repeats is not p.space.outer:
            return no("FUS016", space=str(p.space), points=str(kernel.repeats))
    return YES


def products_keep_their_loops(p: Pair) -> Verdict:
    """FUS017: a product of matrices takes in what follows at each of its points, and no more."""
    if not p.first.multiplies and not p.second.multiplies:
        return YES
    own, other = p.first.space, p.second.space
    is_free = p.is_on_gpu or not p.second.stops  # tiles have no place for what may stop
    if p.first.multiplies and not p.second.multiplies and other.levels == (own.outer,) and is_free:
        return YES
    return no("FUS017", left=str(own), right=str(other))


def not_too_many_buffers(p: Pair) -> Verdict:
    """FUS005: a kernel that touches very many buffers runs out of registers and arguments."""
    count = len(p.first.touches) + len(p.second.touches) - len(p.shared)
    if count <= p.policy.max_buffers:
        return YES
    return no("FUS005", buffers=count, limit=p.policy.max_buffers)


def body_not_too_long(p: Pair) -> Verdict:
    """FUS006: very long bodies spill registers and take long to compile."""
    count = p.first.statements + p.second.statements
    if count <= p.policy.max_statements:
        return YES
    return no("FUS006", statements=count, limit=p.policy.max_statements)


KIND_RULES = (both_are_loops, on_one_device)
SPACE_RULES = (spaces_agree, reduces_at_one_level, adds_as_often, products_keep_their_loops)
LIMIT_RULES = (not_too_many_members, not_too_many_buffers, body_not_too_long)
