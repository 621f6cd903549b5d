"""Collectives through NCCL on one GPU, compiled and in eager mode; prints JSON, exits 0 if alike.

    PYTHONPATH=src python tests/gpu/nccl_one_rank.py                # NCCL, one rank, no network
    PYTHONPATH=src python tests/gpu/nccl_one_rank.py --device cpu   # the same on gloo
    PYTHONPATH=src torchrun --nproc-per-node 2 tests/gpu/nccl_one_rank.py [--device cpu]

Weights in shards are gathered in the forward, their gradients reduced and scattered in the
backward, the loss is summed over all ranks: all inside the graph, trained for some steps in every
way to order and to bucket. One rank sends to itself: what is checked is the path (capture, streams,
waits, memory under way, launches recorded around collectives), not the network.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.nn import functional

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Built, Settings
from treadle.ir.program import Collective, Wait

WIDTH, ROWS, STEPS = 64, 96, 6
CLOSE = 1e-4
"""Of the largest value: sums of f32 in another order."""
WAYS: dict[str, dict[str, Any]] = {
    "simple": {},
    "model": {"comm": "model"},
    "model_bucketed": {"comm": "model", "bucket": 256 << 10, "check": 2},
    "bucketed_launched": {"bucket": 1 << 20, "record": False},
    "gathered_again": {"comm": "model", "regather": "always"},
}


class Sharded(nn.Module):
    """Three layers whose weights are kept in shards and made whole where they are used."""

    def __init__(self, rank: int, world: int) -> None:
        super().__init__()
        shapes = [(4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (2 * WIDTH, WIDTH)]
        whole = [torch.randn(*shape) / shape[1] ** 0.5 for shape in shapes]
        self.shards = nn.ParameterList([w.chunk(world)[rank].clone() for w in whole])

    def forward(self, x: Any) -> Any:
        up, down, out = (
            funcol.all_gather_tensor_autograd(shard, 0, dist.group.WORLD) for shard in self.shards
        )
        hidden = functional.layer_norm(functional.gelu(x @ up.t()) @ down.t() + x, [WIDTH])
        loss = torch.tanh(hidden @ out.t()).square().mean()
        return loss, funcol.all_reduce(loss.detach(), "sum", dist.group.WORLD)


def trained(model: Any, run: Callable[..., Any], data: list[Any]) -> list[Any]:
    """Losses, sums over ranks, gradients and weights of some steps, in order."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[Any] = []
    for x in data:
        loss, total = run(x)
        loss.backward()
        seen += [loss.detach().clone(), (total + 0).clone()]
        seen += [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
    return seen + [p.detach().clone() for p in model.parameters()]


def compared(way: str, device: str, rank: int, world: int) -> dict[str, Any]:
    """One way of compiling beside eager mode."""
    torch._dynamo.reset()
    built: list[Built] = []
    options = Options.from_env().with_(**WAYS[way])
    settings = Settings(options, True, report=built.append)
    torch.manual_seed(0)
    ours = Sharded(rank, world).to(device)
    theirs = Sharded(rank, world).to(device)
    theirs.load_state_dict(ours.state_dict())
    data = [torch.randn(ROWS, WIDTH).to(device) for _ in range(STEPS)]
    compiled = torch.compile(ours, backend=lambda gm, given: compile_with(settings, gm, given))
    start = time.perf_counter()
    found, expected = trained(ours, compiled, data), trained(theirs, theirs, data)
    seconds = time.perf_counter() - start
    apart = max(_apart(a, b) for a, b in zip(found, expected, strict=True))
    leaves = [leaf for one in built for leaf in one.scheduled.program.leaves]
    sent = [leaf for leaf in leaves if isinstance(leaf, Collective)]
    kinds = {leaf.target.split(".")[1] for leaf in sent}
    plans = [one.runner.bound() for one in built]
    return {
        "apart": apart,
        "graphs": len(built),
        "collectives": Counter(leaf.target.split(".")[1] for leaf in sent),
        "waits": sum(isinstance(leaf, Wait) for leaf in leaves),
        "replays": sum(r.replays for plan in plans for r in plan.recorded),
        "seconds": round(seconds, 2),
        "ok": apart < CLOSE and len(built) == 2 and _has_all(kinds),
    }


def _apart(mine: Any, eagers: Any) -> float:
    difference = (mine.float() - eagers.float()).abs().max()
    return float(difference / eagers.float().abs().max().clamp(min=1e-6))


def _has_all(kinds: set[str]) -> bool:
    """Whether all that the model sends is a collective of a compiled program."""
    asked = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce")
    return all(any(kind.startswith(one) for kind in kinds) for one in asked)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--ways", default=",".join(WAYS), help="which to run, of " + ", ".join(WAYS)
    )
    args = parser.parse_args()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = args.device
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    backend = "nccl" if args.device == "cuda" else "gloo"
    if world == 1:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        alone = {"store": dist.FileStore(f"{folder}/store", 1), "rank": 0, "world_size": 1}
        dist.init_process_group(backend, **(alone if world == 1 else {}))
        ways = {way: compared(way, device, rank, world) for way in args.ways.split(",")}
        dist.destroy_process_group()
    is_ok = all(row["ok"] for row in ways.values())
    said = {"ok": is_ok, "torch": torch.__version__, "backend": backend, "world": world}
    if rank == 0 or not is_ok:
        print(json.dumps({**said, "rank": rank, "device": device, "ways": ways}), flush=True)
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
