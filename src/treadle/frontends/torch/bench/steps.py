"""A forward pass or a training step of a target, what it gives, and how far that is off.

In training every result that has a gradient gets the same random one, scalars get 1; compared are
results, gradients of weights and of inputs that ask for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from treadle.frontends.torch.bench.targets import SEED, Target

FLOOR = 1e-3
"""Errors are relative to this share of the largest tensor at least (root mean square): a gradient
that is zero but for rounding, like that of a bias before a batch norm, has no digits to lose."""


class ModelStep:
    """Runs a target one way."""

    def __init__(self, target: Target, train: bool) -> None:
        self.target, self.train = target, train
        for module in target.modules():
            module.train(train)
        leaves = torch.utils._pytree.tree_leaves((target.args, dict(target.kwargs)))
        asked = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
        weights = [p for m in target.modules() for p in m.parameters() if p.requires_grad]
        self.leaves: list[Any] = list(dict.fromkeys([*weights, *asked]))
        """What gets a gradient."""
        self._given: dict[int, Any] = {}

    def run(self, call: Callable[..., Any] | None = None) -> list[Any]:
        """One step, by the target itself or by what it was compiled to; its tensors."""
        call = self.target.call if call is None else call  # a module may have no length
        if not self.train:
            with torch.no_grad():
                return tensors_in(call(*self.target.args, **self.target.kwargs))
        for leaf in self.leaves:
            leaf.grad = None
        made = tensors_in(call(*self.target.args, **self.target.kwargs))
        wanted = [x for x in made if x.requires_grad]
        if wanted:
            torch.autograd.backward(wanted, [self._gradient(k, x) for k, x in enumerate(wanted)])
        return made

    def _gradient(self, k: int, result: Any) -> Any:
        if k not in self._given:
            generator = torch.Generator().manual_seed(SEED + k)
            drawn = torch.randn(result.shape, generator=generator, dtype=torch.float64)
            ones = torch.ones(())
            given = drawn if result.dim() else ones
            self._given[k] = given.to(result.device, result.dtype)
        return self._given[k]

    def results(self, call: Callable[..., Any] | None = None, seed: int = SEED) -> list[Any]:
        """What a step gives, gradients last, as f64 on the CPU."""
        torch.manual_seed(seed)
        made = self.run(call)
        grads = [x.grad for x in self.leaves if x.grad is not None] if self.train else []
        return [x.detach().to("cpu", torch.float64).clone() for x in (*made, *grads)]


def tensors_in(made: Any) -> list[Any]:
    """The floating-point tensors of a result; a loss alone, if a result has one."""
    loss = getattr(made, "loss", None)
    leaves = [loss] if isinstance(loss, torch.Tensor) else torch.utils._pytree.tree_leaves(made)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def error_between(got: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest relative L2 error of any tensor; infinite where one has numbers and one not."""
    if len(got) != len(wanted):
        return float("inf")
    errors, least = [0.0], FLOOR * max([_size(b) for b in wanted], default=0.0)
    for a, b in zip(got, wanted, strict=True):
        if a.shape != b.shape:
            return float("inf")
        same = (a == b) | (a.isnan() & b.isnan())
        gap = torch.where(same, torch.zeros_like(a), a - b)
        off, scale = _size(gap, only_finite=False), max(_size(b), least)
        error = off / scale if off and scale else off
        errors.append(error if error == error else float("inf"))
    return max(errors)


def _size(x: Any, only_finite: bool = True) -> float:
    """The root mean square of a tensor's elements."""
    kept = torch.where(x.isfinite(), x, torch.zeros_like(x)) if only_finite else x
    return float(kept.square().mean().sqrt()) if x.numel() else 0.0
