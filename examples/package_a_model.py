"""Compile a model ahead of time, then run it as a process without torch's compiler would.

python examples/package_a_model.py
"""

from __future__ import annotations

import numpy as np
import torch

import treadle
from treadle.torch import package


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.LayerNorm(32))
    example = torch.randn(8, 64)
    path = package(
        model, (example,), "mlp.treadle", dynamic={0: {0: "batch"}}, name="mlp", force=True
    )
    loaded = treadle.load_package(path)
    for rows in (1, 5, 100):
        x = np.random.default_rng(0).standard_normal((rows, 64), dtype=np.float32)
        found = loaded(x)
        with torch.no_grad():
            expected = model(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        print(f"{rows} rows: {found.shape}, the same as eager")
    print("for C: mlp.treadle/mlp.h and mlp.so;", loaded.held_bytes, "bytes held for runs")


if __name__ == "__main__":
    main()
