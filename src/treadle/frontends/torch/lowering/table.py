"""Every ATen overload that becomes loops, put together from the modules of lowerings.

To add a module of lowerings, add it to `MODULES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering.ops import (
    attention,
    combine,
    convolutions,
    create,
    edges,
    foreach,
    formulas,
    index,
    pointwise,
    pool,
    products,
    reduce,
    resize,
    rest,
    scatter,
    search,
    shape,
    softmax,
    sort,
    views,
)
from treadle.frontends.torch.lowering.registry import Lowering, collect

MODULES = (
    attention,
    combine,
    convolutions,
    create,
    edges,
    foreach,
    resize,
    rest,
    search,
    formulas,
    index,
    pointwise,
    pool,
    products,
    reduce,
    scatter,
    shape,
    softmax,
    sort,
    views,
)

TABLE: Mapping[str, Lowering] = {
    name: lowering for name, lowering in collect(*MODULES).items() if compat.has_overload(name)
}
"""Lowerings by overload, of those this torch has."""
