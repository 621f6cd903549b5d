"""Models of our own for `treadle bench`: each a function that makes (model, inputs)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from treadle.frontends.torch.demo.model import Decoder, ModelSizes, next_token_loss

Made = tuple[Any, tuple[Any, ...]]


def decoder() -> Made:
    """The language model of `treadle demo`, with its loss."""
    sizes = ModelSizes()
    model = Decoder(sizes)

    def loss(ids: Any) -> Any:
        return next_token_loss(model(ids), ids)

    return loss, (torch.randint(sizes.words, (sizes.batch, sizes.tokens)),)


def mlp() -> Made:
    """Three layers with GELU between them."""
    wide = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU())
    return nn.Sequential(wide, nn.Linear(512, 256)), (torch.randn(64, 256),)


def norm() -> Made:
    """A layer norm with a residual before and a GELU behind it."""
    layer = nn.LayerNorm(512)

    def normed(x: Any, y: Any) -> Any:
        return nn.functional.gelu(layer(x + y))

    return normed, (torch.randn(256, 512), torch.randn(256, 512))


def conv() -> Made:
    """A small image network: convolutions, batch norms, a residual, a pool."""
    body = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())

    def classify(images: Any) -> Any:
        x = stem(images)
        return head(x + body(x))

    return classify, (torch.randn(4, 3, 32, 32),)


def pointwise() -> Made:
    """A chain of cheap functions over one large tensor."""

    def chain(x: Any, y: Any) -> Any:
        return torch.sigmoid(x) * torch.tanh(y) + torch.exp(-x.square()) * 0.5

    return chain, (torch.randn(512, 1024), torch.randn(512, 1024))


MODELS: Mapping[str, Callable[[], Made]] = {
    "decoder": decoder,
    "mlp": mlp,
    "norm": norm,
    "conv": conv,
    "pointwise": pointwise,
}
"""The built-in models by name; `runner.BUILTIN` names them where torch is not loaded."""
