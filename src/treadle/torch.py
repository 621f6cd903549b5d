"""Makes `torch.compile(model, backend="treadle")` known to torch, and models into packages.

An installed Treadle needs no import: torch finds the backend by its entry point. From a source
tree, `import treadle.torch` registers it.

    treadle.torch.package(model, (x,), "model.treadle")      a model compiled ahead of time
"""

from __future__ import annotations

from treadle.frontends.torch import compat
from treadle.frontends.torch.backend import NAME, treadle
from treadle.frontends.torch.capture.package import package

compat.register_backend(treadle, NAME)

__all__ = ["package", "treadle"]
