"""Compile a model, train it for a few steps, and write the page of what was decided.

python examples/compile_a_model.py
"""

from __future__ import annotations

import torch

import treadle.torch  # noqa: F401 - not needed where Treadle is installed


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 8)
    )
    fast = torch.compile(model, backend="treadle", options={"report": "model.html"})
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x, wanted = torch.randn(32, 64), torch.randint(8, (32,))
    losses = []
    for _ in range(5):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(fast(x), wanted)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    print("losses:", ", ".join(f"{loss:.3f}" for loss in losses))
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    print("the same results as eager; forward and backward are in model.html")


if __name__ == "__main__":
    main()
