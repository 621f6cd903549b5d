"""What the models of own_models_*.py share: the table they are entered in, and their pieces."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Made(NamedTuple):
    """A model with its arguments: what is compiled, what it is given, what gets gradients."""

    module: nn.Module
    args: tuple[Any, ...]
    trains: bool = True

    @property
    def params(self) -> list[torch.Tensor]:
        return [p for p in self.module.parameters() if p.requires_grad]

    def copied(self, dtype: Any) -> Made:
        """The same numbers in modules and tensors of their own, in another type."""
        module = copy.deepcopy(self.module).to(dtype)
        args = torch.utils._pytree.tree_map(lambda x: _typed(x, dtype), self.args)
        return Made(module, args, self.trains)


MODELS: dict[str, Callable[[bool], Made]] = {}
"""Name -> function of "is it for a GPU" that makes it, in f32 on the default device."""


def model(build: Callable[[bool], Made]) -> Callable[[bool], Made]:
    """Enter a function that makes a model into the table, under its name."""
    MODELS[build.__name__] = build
    return build


def made(name: str, device: str, dtype: Any, scale: str) -> Made:
    """A model of the table with its arguments, always with the same numbers."""
    torch.manual_seed(0)
    with torch.device(device):
        return MODELS[name](scale == "gpu").copied(dtype)


def _typed(x: Any, dtype: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    return x.to(dtype) if x.is_floating_point() else x.clone()


def wide(x: torch.Tensor) -> torch.Tensor:
    """The values in f32, or in f64 where they are that already."""
    return x if x.dtype == torch.float64 else x.float()


def loss_of(scores: torch.Tensor, classes: torch.Tensor, **more: Any) -> torch.Tensor:
    """Cross entropy over the last dimension."""
    return F.cross_entropy(wide(scores).flatten(0, -2), classes.flatten(), **more)


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = wide(x)
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Feed(nn.Module):
    """Two products with a gelu between."""

    def __init__(self, width: int, times: int = 4) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, times * width), nn.Linear(times * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Attention(nn.Module):
    """Attention of several heads, to itself or to a memory, with a mask or without."""

    def __init__(self, width: int, heads: int, scale: float | None = None) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        k, v = self.kv(x if memory is None else memory).chunk(2, -1)
        found = F.scaled_dot_product_attention(
            self._split(self.q(x)), self._split(k), self._split(v),
            attn_mask=mask, is_causal=causal, scale=self.scale,
        )  # fmt: skip
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A transformer's layer, norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = Attention(width, heads), Feed(width)

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        x = x + self.attention(self.before(x), mask=mask, causal=causal)
        return x + self.feed(self.between(x))
