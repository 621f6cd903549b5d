"""Makes `torch.compile(model, backend="treadle")` known to torch.

An installed Treadle needs no import: torch finds the backend by its entry point. From a source
tree, `import treadle.torch` registers it.
"""

from __future__ import annotations

from treadle.frontends.torch import compat
from treadle.frontends.torch.backend import NAME, treadle

compat.register_backend(treadle, NAME)

__all__ = ["treadle"]
