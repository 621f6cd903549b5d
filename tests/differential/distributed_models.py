"""Small models for jobs of several ranks: a transformer, spread over ranks in every usual way."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

WIDTH, HEAD, TOKENS, LAYERS = 16, 4, 6, 2


class Attention(nn.Module):
    """Causal self-attention; how many heads there are follows from the weights it has."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Any) -> Any:
        rows, tokens, _ = x.shape
        heads = [
            f(x).view(rows, tokens, -1, HEAD).transpose(1, 2) for f in (self.q, self.k, self.v)
        ]
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(seen.transpose(1, 2).reshape(rows, tokens, -1))


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.first(x))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """A few layers."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(layers)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class Gathered(nn.Module):
    """Weights kept in shards and gathered where they are used, all inside the graph."""

    def __init__(self, rank: int, world: int) -> None:
        super().__init__()
        whole = [torch.randn(32, 16) / 4, torch.randn(16, 32) / 6, torch.randn(32, 16) / 4]
        self.shards = nn.ParameterList([w.chunk(world)[rank].clone() for w in whole])

    def forward(self, x: Any) -> Any:
        up, down, out = (
            funcol.all_gather_tensor_autograd(shard, 0, dist.group.WORLD) for shard in self.shards
        )
        return torch.tanh(functional.gelu(x @ up.t()) @ down.t()) @ out.t()


class Whole(nn.Module):
    """Makes a parameter that is a DTensor, in shards, whole where it is used."""

    def forward(self, shard: Any) -> Any:
        from torch.distributed.tensor import Partial, Replicate

        whole = shard.redistribute(placements=[Replicate()])
        return whole.to_local(grad_placements=[Partial("sum")])


def shard_in_graph(model: nn.Module, world: int) -> nn.Module:
    """Keep every parameter as a DTensor in shards; the forward gathers it, the backward reduces."""
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.nn.utils import parametrize

    mesh = init_device_mesh("cpu", (world,))
    for module in list(model.modules()):
        for name, value in list(module.named_parameters(recurse=False)):
            shard = nn.Parameter(distribute_tensor(value.detach(), mesh, [Shard(0)]))
            module.register_parameter(name, shard)
            parametrize.register_parametrization(module, name, Whole(), unsafe=True)
    return model


def parallel_transformer(case: str, world: int) -> Any:
    """A transformer spread over ranks as the case says."""
    torch.manual_seed(0)
    # What is sent together or again is found by many passes: one layer has enough of it.
    is_short = case in ("in_graph_bucketed", "in_graph_again", "in_graph_limited")
    model: Any = Transformer(1 if is_short else LAYERS)
    if case == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if case.startswith("in_graph"):
        return shard_in_graph(model, world)
    if case == "fsdp2":
        _shard(model, init_device_mesh("cpu", (world,)))
        return model
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    assert case in ("tp", "tp_fsdp2"), case
    both = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    for block in model.blocks:
        plan: dict[str, Any] = {f"attention.{name}": ColwiseParallel() for name in "qkv"}
        plan |= {"attention.out": RowwiseParallel(), "up": ColwiseParallel()}
        parallelize_module(block, both["tp"], {**plan, "down": RowwiseParallel()})
    if case == "tp_fsdp2":
        _shard(model, both["dp"])
    return model


def _shard(model: Any, mesh: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
