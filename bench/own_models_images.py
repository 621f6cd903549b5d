"""Models over images and sounds: convolutions, norms, attention, upsampling."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from own_models_parts import Attention, Block, Made, loss_of, model, wide


class Vit(nn.Module):
    """Patches, a token for the class, blocks."""

    def __init__(self, side: int, patch: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.places
        for block in self.blocks:
            x = block(x)
        return loss_of(self.head(self.norm(x)[:, 0]), y)


def images(b: int, side: int, classes: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images and their classes."""
    return torch.randn(b, 3, side, side), torch.randint(0, classes, (b,))


@model
def vit(gpu: bool) -> Made:
    b, side, patch, width, heads, layers = (
        (32, 224, 16, 768, 12, 6) if gpu else (2, 64, 8, 128, 4, 2)
    )
    return Made(Vit(side, patch, width, heads, layers), images(b, side))


class Residual(nn.Module):
    """Two normed convolutions with a time in between, beside a shortcut."""

    def __init__(self, before: int, after: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.a = nn.Conv2d(before, after, 3, padding=1)
        self.b = nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(width, after)
        self.short = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.a(F.silu(self.first(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.short(x) + self.b(F.silu(self.second(h)))


class Looks(nn.Module):
    """Attention of every place to every place of an image."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(8, width), Attention(width, heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(rows).transpose(1, 2).reshape(x.shape)


def embedded(time: torch.Tensor, width: int) -> torch.Tensor:
    """Sines and cosines of a time, as long as wanted."""
    steps = torch.arange(width // 2, device=time.device, dtype=time.dtype)
    angles = time[:, None] * torch.exp(steps * (-9.21 / (width // 2)))
    return torch.cat((angles.sin(), angles.cos()), -1)


class Unet(nn.Module):
    """Down twice, attention, up twice by nearest neighbours, with what was on the way down."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w, self.width = width, width
        self.time = nn.Sequential(nn.Linear(w, 4 * w), nn.SiLU(), nn.Linear(4 * w, 4 * w))
        self.stem = nn.Conv2d(3, w, 3, padding=1)
        self.down = nn.ModuleList([Residual(w, w, 4 * w), Residual(w, 2 * w, 4 * w)])
        self.shrink = nn.ModuleList([nn.Conv2d(k * w, k * w, 3, 2, 1) for k in (1, 2)])
        self.middle = nn.ModuleList([Residual(2 * w, 2 * w, 4 * w) for _ in range(2)])
        self.looks = Looks(2 * w, 4)
        self.up = nn.ModuleList([Residual(4 * w, 2 * w, 4 * w), Residual(3 * w, w, 4 * w)])
        self.grow = nn.ModuleList([nn.Conv2d(2 * w, 2 * w, 3, padding=1) for _ in range(2)])
        self.norm, self.last = nn.GroupNorm(8, w), nn.Conv2d(w, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        t = self.time(embedded(wide(time), self.width).to(x.dtype))
        x, kept = self.stem(x), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x = block(x, t)
            kept.append(x)
            x = shrink(x)
        x = self.middle[1](self.looks(self.middle[0](x, t)), t)
        for block, grow in zip(self.up, self.grow, strict=True):
            x = grow(F.interpolate(x, scale_factor=2.0, mode="nearest"))
            x = block(torch.cat((x, kept.pop()), 1), t)
        return F.mse_loss(wide(self.last(F.silu(self.norm(x)))), wide(noise))


@model
def unet(gpu: bool) -> Made:
    b, side, width = (32, 64, 128) if gpu else (1, 32, 16)
    x, noise = torch.randn(b, 3, side, side), torch.randn(b, 3, side, side)
    return Made(Unet(width), (x, torch.rand(b) * 1000, noise))


class Squeeze(nn.Module):
    """Channels weighed by what the whole image holds of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.up(F.relu(self.down(s))))


class Inverted(nn.Module):
    """Wider, depthwise, squeezed, narrow again."""

    def __init__(self, before: int, after: int, stride: int, kernel: int) -> None:
        super().__init__()
        wider = 4 * before
        self.skips = stride == 1 and before == after
        self.body = nn.Sequential(
            nn.Conv2d(before, wider, 1, bias=False), nn.BatchNorm2d(wider), nn.Hardswish(),
            nn.Conv2d(wider, wider, kernel, stride, kernel // 2, groups=wider, bias=False),
            nn.BatchNorm2d(wider), nn.Hardswish(), Squeeze(wider),
            nn.Conv2d(wider, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.skips else self.body(x)


class Classifier(nn.Module):
    """Layers, a mean over the image, classes."""

    def __init__(self, layers: list[nn.Module], width: int) -> None:
        super().__init__()
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, 100)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return loss_of(self.head(self.layers(x).mean((2, 3))), y)


@model
def mobilenet(gpu: bool) -> Made:
    b, side, w = (64, 224, 32) if gpu else (2, 64, 8)
    layers = [nn.Conv2d(3, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w), nn.Hardswish()]
    layers += [Inverted(w, w, 1, 3), Inverted(w, 2 * w, 2, 5), Inverted(2 * w, 2 * w, 1, 5)]
    layers += [Inverted(2 * w, 4 * w, 2, 3), Inverted(4 * w, 4 * w, 1, 3)]
    return Made(Classifier(layers, 4 * w), images(b, side))


class ConvNextBlock(nn.Module):
    """A wide depthwise convolution, a norm over channels, two products, a scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.deep(x).permute(0, 2, 3, 1))
        h = self.scale * self.down(F.gelu(self.up(h)))
        return x + h.permute(0, 3, 1, 2)


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of an image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@model
def convnext(gpu: bool) -> Made:
    b, side, w = (32, 224, 96) if gpu else (2, 64, 24)
    layers: list[nn.Module] = [nn.Conv2d(3, w, 4, 4), ChannelNorm(w)]
    layers += [ConvNextBlock(w) for _ in range(2)]
    layers += [ChannelNorm(w), nn.Conv2d(w, 2 * w, 2, 2)]
    layers += [ConvNextBlock(2 * w) for _ in range(2)]
    return Made(Classifier(layers, 2 * w), images(b, side))


class Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        short = nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
        self.short = nn.Sequential(*short) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.short(x))


class Frozen(Classifier):
    """Norms keep to the statistics they have, in training too."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(False)
        return self


@model
def resnet_frozen(gpu: bool) -> Made:
    b, side, w = (32, 224, 64) if gpu else (1, 64, 16)
    layers = [nn.Conv2d(3, w, 7, 2, 3, bias=False), nn.BatchNorm2d(w), nn.ReLU()]
    layers += [nn.MaxPool2d(3, 2, 1), Bottleneck(w, w, 1), Bottleneck(4 * w, w, 1)]
    layers += [Bottleneck(4 * w, 2 * w, 2), Bottleneck(8 * w, 2 * w, 1)]
    return Made(Frozen(layers, 8 * w), images(b, side))


class Wavenet(nn.Module):
    """Gated dilated convolutions that see only the past, skips added up."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(256, width)
        self.deep = nn.ModuleList(
            [nn.Conv1d(width, 2 * width, 2, dilation=2**k) for k in range(layers)]
        )
        self.out = nn.ModuleList([nn.Conv1d(width, 2 * width, 1) for _ in range(layers)])
        self.a, self.b = nn.Conv1d(width, width, 1), nn.Conv1d(width, 256, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, total = self.words(ids).transpose(1, 2), torch.zeros((), device=ids.device)
        total = total.to(x.dtype)
        for deep, out in zip(self.deep, self.out, strict=True):
            f, g = deep(F.pad(x, (deep.dilation[0], 0))).chunk(2, 1)
            more, skip = out(torch.tanh(f) * torch.sigmoid(g)).chunk(2, 1)
            x, total = x + more, total + skip
        scores = self.b(F.relu(self.a(F.relu(total))))
        return loss_of(scores.transpose(1, 2)[:, :-1], ids[:, 1:])


@model
def wavenet(gpu: bool) -> Made:
    b, t, width, layers = (16, 8192, 64, 10) if gpu else (1, 512, 32, 6)
    return Made(Wavenet(width, layers), (torch.randint(0, 256, (b, t)),))


def growing(before: int, after: int) -> list[nn.Module]:
    """Twice the size by a transposed convolution, normed."""
    wider = nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False)
    return [wider, nn.BatchNorm2d(after), nn.ReLU()]


def shrinking(before: int, after: int) -> list[nn.Module]:
    """Half the size, normed."""
    return [nn.Conv2d(before, after, 4, 2, 1, bias=False), nn.BatchNorm2d(after), nn.LeakyReLU(0.2)]


class Vae(nn.Module):
    """An encoder to a mean and a spread, a decoder from a sample."""

    def __init__(self, w: int, side: int, hidden: int) -> None:
        super().__init__()
        self.small, flat = side // 8, 4 * w * (side // 8) ** 2
        self.encode = nn.Sequential(
            *shrinking(3, w), *shrinking(w, 2 * w), *shrinking(2 * w, 4 * w)
        )
        self.spread, self.back = nn.Linear(flat, 2 * hidden), nn.Linear(hidden, flat)
        last = nn.ConvTranspose2d(w, 3, 4, 2, 1)
        self.decode = nn.Sequential(*growing(4 * w, 2 * w), *growing(2 * w, w), last)

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        mean, log = self.spread(self.encode(x).flatten(1)).chunk(2, -1)
        z = self.back(mean + noise * torch.exp(0.5 * log))
        y = self.decode(z.unflatten(1, (-1, self.small, self.small)))
        m, s = wide(mean), wide(log)
        apart = -0.5 * (1 + s - m.pow(2) - s.exp()).sum(-1).mean()
        return F.binary_cross_entropy_with_logits(wide(y), wide(x).sigmoid()) + 1e-3 * apart


@model
def vae(gpu: bool) -> Made:
    b, w, side, hidden = (256, 64, 64, 256) if gpu else (4, 8, 32, 16)
    return Made(Vae(w, side, hidden), (torch.randn(b, 3, side, side), torch.randn(b, hidden)))


class Gan(nn.Module):
    """A generator against a critic with hinges; both get gradients of one sum."""

    def __init__(self, w: int, hidden: int) -> None:
        super().__init__()
        start = nn.ConvTranspose2d(hidden, 4 * w, 4, 1, 0, bias=False)
        first = [start, nn.BatchNorm2d(4 * w), nn.ReLU()]
        last = nn.ConvTranspose2d(w, 3, 4, 2, 1)
        self.make = nn.Sequential(
            *first, *growing(4 * w, 2 * w), *growing(2 * w, w), last, nn.Tanh()
        )
        self.judge = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1), nn.LeakyReLU(0.2), *shrinking(w, 2 * w),
            *shrinking(2 * w, 4 * w), nn.Conv2d(4 * w, 1, 4),
        )  # fmt: skip

    def forward(self, real: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        made = self.make(z[:, :, None, None])
        kept = F.relu(1 - wide(self.judge(real))).mean()
        return kept + F.relu(1 + wide(self.judge(made))).mean()


@model
def gan(gpu: bool) -> Made:
    b, w, hidden = (256, 64, 128) if gpu else (4, 8, 32)
    return Made(Gan(w, hidden), (torch.rand(b, 3, 32, 32) * 2 - 1, torch.randn(b, hidden)))
