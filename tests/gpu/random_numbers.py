"""Random numbers in recordings on a GPU: step for step those of eager mode from the same seed.

    PYTHONPATH=src python tests/gpu/random_numbers.py

Dropout, noise and coins, forward and gradients, over enough steps for recordings to be made and
replayed; seeds set again in between, and draws by the caller between steps. Prints what it
compared and how many replays there were; ends with 1 if anything differs or nothing was replayed.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

import treadle.torch  # noqa: F401  (registers the backend)
from treadle.runtime.hosts.recorded_steps import ReplayedSteps

STEPS = 12
F32_ROUNDING = 1e-5


def layers(x: Any, w: Any) -> Any:
    """Three dropouts between products, as in a feed-forward block."""
    h = F.dropout(F.gelu(x @ w), 0.1)
    return F.dropout(h @ w.t(), 0.3) + F.dropout(x, 0.5)


def noise(x: Any, w: Any) -> Any:
    """Noise of both kinds, and coins."""
    y = x + torch.randn_like(x) * 0.1 + torch.rand(x.shape, device=x.device)
    return (y @ w) * torch.bernoulli(torch.full_like(w[:1], 0.5))


def run(f: Callable[..., Any], again: int) -> list[Any]:
    """What some steps give, with draws by the caller in between and one seed set again."""
    torch.manual_seed(5)
    x = torch.randn(64, 96, device="cuda", requires_grad=True)
    w = torch.randn(96, 96, device="cuda", requires_grad=True)
    found = []
    for k in range(STEPS):
        if k == again:
            torch.manual_seed(11)
        out = f(x, w)
        grads = torch.autograd.grad(out.square().sum(), [x, w])
        found += [t.detach().cpu() for t in (out, *grads)]  # memory is free again
        del out, grads
        found.append(torch.rand(3, device="cuda").cpu())
    return found


def main() -> int:
    failed = 0
    for f in (layers, noise):
        torch._dynamo.reset()
        wanted, found = run(f, 7), run(torch.compile(f, backend="treadle"), 7)
        worst = max(
            float((a - b).abs().max() / (b.abs().max() + 1e-9))
            for a, b in zip(found, wanted, strict=True)
        )
        steps = [s for s in gc.get_objects() if type(s) is ReplayedSteps and s.steps.draws]
        replays = sum(s.replays for s in steps)
        is_fine = worst < F32_ROUNDING * 100 and replays > 0
        failed += not is_fine
        print(f"{f.__name__}: largest error {worst:.1e}, {replays} replays of {len(steps)} parts")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
