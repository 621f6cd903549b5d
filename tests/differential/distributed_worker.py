"""One rank of a job on gloo: trains with and without the compiler and says what it saw, as JSON.

python distributed_worker.py CASE RANK WORLD STORE_FILE
"""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Built, Settings
from treadle.ir.program import Collective, Wait

STEPS = 3


class Net(nn.Module):
    """Two layers with something to overlap between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


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
        return torch.tanh(torch.nn.functional.gelu(x @ up.t()) @ down.t()) @ out.t()


def backend(built: list[Built], **options: Any) -> Any:
    settings = Settings(Options.from_env().with_(**options), True, report=built.append)
    return lambda gm, given: compile_with(settings, gm, given)


def train(model: Any, run: Any, data: list[Any]) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for x in data:
        loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def models(case: str, rank: int, world: int) -> tuple[Any, Any]:
    """The same model twice, spread over the ranks as the case says."""
    torch.manual_seed(0)
    if case in ("gathered", "modelled"):
        one: Any = Gathered(rank, world)
        return one, copy.deepcopy(one)
    pair = []
    for _ in range(2):
        torch.manual_seed(0)
        model: Any = Net()
        if case == "ddp":
            model = nn.parallel.DistributedDataParallel(model)
        elif case == "fsdp2":
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (world,))
            fully_shard(model.up, mesh=mesh)
            fully_shard(model.down, mesh=mesh)
            fully_shard(model, mesh=mesh)
        elif case in ("tp", "tp_fsdp2"):
            from torch.distributed.tensor.parallel import (
                ColwiseParallel,
                RowwiseParallel,
                parallelize_module,
            )

            both = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
            plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
            model = parallelize_module(model, both["tp"], plan)
            if case == "tp_fsdp2":
                from torch.distributed.fsdp import fully_shard

                fully_shard(model, mesh=both["dp"])
        pair.append(model)
    return pair[0], pair[1]


def disagree(rank: int) -> str:
    """Two ranks that order the same collectives differently; gives the error of the second."""
    from treadle.frontends.torch.process_groups import _first_written
    from treadle.schedule.overlap.agreement import CollectiveOrder, RankOrderError

    rows = ("gather of 8 bytes", "gather of 16 bytes")
    mine = CollectiveOrder((("g", rows if rank == 0 else rows[::-1]),))
    if rank == 1:
        dist.barrier()
    known = _first_written(f"test/{mine.question}", rank, mine.to_text())
    if rank == 0:
        dist.barrier()
    assert known is not None, "gloo's store can tell who was first"
    try:
        mine.check_against(CollectiveOrder.parse(known[1]), f"rank {rank}", f"rank {known[0]}")
    except RankOrderError as e:
        return str(e)
    return ""


def main() -> None:
    case, rank, world, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    store = dist.FileStore(file, world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    if case == "disagree":
        print(json.dumps({"error": disagree(rank)}))
        dist.destroy_process_group()
        return
    eager, compiled = models(case, rank, world)
    # Ranks of one tensor-parallel group see the same data.
    torch.manual_seed(1 + (rank // 2 if case.startswith("tp") else rank))
    data = [torch.randn(4, 16) for _ in range(STEPS)]
    built: list[Built] = []
    options = {"comm": "model"} if case == "modelled" else {}
    run = torch.compile(compiled, backend=backend(built, **options))
    expected, found = train(eager, eager, data), train(compiled, run, data)
    leaves = [leaf for b in built for leaf in b.scheduled.program.leaves]
    sent = [leaf for leaf in leaves if isinstance(leaf, Collective)]
    weights = zip(eager.parameters(), compiled.parameters(), strict=True)
    print(
        json.dumps(
            {
                "expected": expected,
                "found": found,
                "weights_apart": max(float(_own(a - b).abs().max()) for a, b in weights),
                "graphs": len(built),
                "collectives": [leaf.target for leaf in sent],
                "ranks": sorted({leaf.ranks for leaf in sent}),
                "waits": sum(isinstance(leaf, Wait) for leaf in leaves),
            }
        )
    )
    dist.destroy_process_group()


def _own(tensor: Any) -> Any:
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


if __name__ == "__main__":
    main()
