"""Every ATen overload that becomes loops, put together from the modules of lowerings.

To add a module of lowerings, add it to `MODULES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.frontends.torch import (
    compat,
    ops_combine,
    ops_create,
    ops_foreach,
    ops_formulas,
    ops_index,
    ops_pointwise,
    ops_pool,
    ops_reduce,
    ops_resize,
    ops_rest,
    ops_scatter,
    ops_search,
    ops_shape,
    ops_softmax,
    ops_sort,
    ops_views,
)
from treadle.frontends.torch.registry import Lowering, collect

MODULES = (
    ops_combine,
    ops_create,
    ops_foreach,
    ops_resize,
    ops_rest,
    ops_search,
    ops_formulas,
    ops_index,
    ops_pointwise,
    ops_pool,
    ops_reduce,
    ops_scatter,
    ops_shape,
    ops_softmax,
    ops_sort,
    ops_views,
)

TABLE: Mapping[str, Lowering] = {
    name: lowering for name, lowering in collect(*MODULES).items() if compat.has_overload(name)
}
"""Lowerings by overload, of those this torch has."""
