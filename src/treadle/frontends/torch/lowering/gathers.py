"""Gathers that torch's gloo can have under way several at a time.

gloo runs the collectives of a group in two threads, and each notes what it finished last in one
string of the group's, with no lock. A name of up to 15 letters lies in the string itself. A longer
one lies in memory that the next writer frees: two threads that end together free it twice, and the
heap is broken. Of all that gloo runs, only gathers of a list have such a name, and torch makes a
list of every `all_gather_into_tensor` too. The form that is told where to write does not: it sends
the same bytes under a short name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

GLOO = "gloo"


def sent_safely(function: Any) -> Any:
    """A function to call instead, with the same meaning; most functions stand for themselves."""
    return _instead().get(function, function)


def gather(input: Any, group_size: int, group_name: Any) -> Any:
    """`all_gather_into_tensor`, not as a list of one where gloo sends it."""
    if not input.dim() or not _is_gloos(input, group_name):
        return _operators().all_gather_into_tensor.default(input, group_size, group_name)
    return _gather_alone(input, group_size, group_name)


def gather_each(inputs: Sequence[Any], group_size: int, group_name: Any) -> list[Any]:
    """`all_gather_into_tensor_coalesced`, one by one where gloo sends it."""
    is_short = all(x.dim() and _is_gloos(x, group_name) for x in inputs)
    if not is_short:
        whole = _operators().all_gather_into_tensor_coalesced.default
        return list(whole(inputs, group_size, group_name))
    return [_gather_alone(x, group_size, group_name) for x in inputs]


def _gather_alone(given: Any, group_size: int, group_name: Any) -> Any:
    made = given.new_empty((given.shape[0] * group_size, *given.shape[1:]))
    # Waits are found by the memory behind a tensor: to wait for `made` is to wait for its parts.
    source, target = map(_in_real_numbers, (given, made))
    _operators().all_gather_into_tensor_out.default(source, group_size, group_name, out=target)
    return made


def _in_real_numbers(tensor: Any) -> Any:
    """What gloo can send: it does not know complex numbers."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _is_gloos(tensor: Any, group_name: Any) -> bool:
    """Whether gloo sends a tensor; False too where nobody can tell: then torch says why."""
    own: Any = dist.distributed_c10d
    if not tensor.is_cpu:
        return False
    try:
        is_name = isinstance(group_name, str)  # newer graphs hold the group itself
        group = own._resolve_process_group(group_name) if is_name else group_name
        return str(group._get_backend(tensor.device).name()) == GLOO
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return False


def _operators() -> Any:
    return torch.ops._c10d_functional


def _instead() -> Mapping[Any, Callable[..., Any]]:
    """By operator; torch without torch.distributed has none of them."""
    if not dist.is_available():
        return {}
    own = _operators()
    return {
        own.all_gather_into_tensor.default: gather,
        own.all_gather_into_tensor_coalesced.default: gather_each,
    }
