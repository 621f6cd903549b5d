"""The peer's overlap scheduler on our generated programs, with the same costs, judged alike.

A program of `treadle.testing.fsdp_programs` becomes an FX graph, one node for each operation; the
peer (`torch._inductor.fx_passes.overlap_scheduling`) orders it under a fake process group, told
what each node costs by our model; the order it gives is read back and simulated like ours. It may
use the same memory as ours, as it counts: `spare` times the peak of the given order.

Left out: its bucketing (it changes the program), its estimates (they need a GPU), and the passes on
Inductor's scheduler nodes (they need Inductor's lowering of the whole graph).
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from treadle.analysis.comm.tasks import TaskGraph
from treadle.ir.effects import effects
from treadle.ir.program import Collective, Loop, Program, Wait


def is_available() -> bool:
    """Whether a torch with the peer's scheduler and a fake process group is installed."""
    try:
        import torch.distributed as dist
        from torch._inductor.fx_passes import overlap_scheduling
        from torch.testing._internal.distributed import fake_pg
    except ImportError:
        return False
    return dist.is_available() and bool(overlap_scheduling) and bool(fake_pg)


def peers_order(program: Program, graph: TaskGraph, spare: float) -> list[int]:
    """The order of a program's operations that the peer finds, as positions in the given one."""
    import torch
    import torch.distributed as dist
    from torch._inductor.fx_passes import overlap_scheduling
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world = max(len(op.ranks) for op in program.ops if isinstance(op, Collective))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        with FakeTensorMode():
            name = dist.group.WORLD.group_name  # type: ignore[union-attr]
            made, nodes = _as_fx(program, name)
            ms = {nodes[k]: task.us / 1e3 for k, task in enumerate(graph.tasks) if k in nodes}
            cost = lambda node, size=None: ms.get(node.name, 0.0)  # noqa: E731
            # Its roof line asks a GPU even where it is told all costs.
            with mock.patch.object(overlap_scheduling, "estimate_roofline_runtime_ms", cost):
                found = overlap_scheduling.schedule_overlap_bucketing(
                    torch.fx.GraphModule(torch.nn.Module(), made),
                    custom_runtime_estimation=cost,
                    compute_estimator="analytical",
                    max_memory_increase_gb=None,
                    max_memory_increase_ratio=spare - 1,
                    pre_bucketing_fsdp_collectives=False,
                )
    finally:
        dist.destroy_process_group()
    number = {name: k for k, name in nodes.items()}
    return [number[node.name] for node in found.graph.nodes if node.name in number]


def _as_fx(program: Program, group: str) -> tuple[Any, dict[int, str]]:
    """The program as an FX graph, and the node of each operation."""
    import torch

    aten, sends = torch.ops.aten, torch.ops._c10d_functional
    made = torch.fx.Graph()
    value: dict[str, Any] = {}
    nodes: dict[int, str] = {}

    def sizes_of(name: str) -> list[int]:
        return [int(str(n)) for n in program.by_name[name].layout.sizes]

    def add(k: int, name: str, target: Any, args: tuple[Any, ...]) -> None:
        node = made.create_node("call_function", target, args, name=program.ops[k].name)
        node.meta["val"] = torch.empty(sizes_of(name), dtype=torch.bfloat16, device="cuda")
        value[name], nodes[k] = node, node.name

    for name in program.inputs:
        value[name] = made.placeholder(name)
        value[name].meta["val"] = torch.empty(sizes_of(name), dtype=torch.bfloat16, device="cuda")

    def read(name: str) -> Any:
        """The value under a name; of a view, of what it shows, turned."""
        storage = program.storage_of(name)
        if name == storage:
            return value[name]
        turned = made.create_node("call_function", aten.t.default, (value[storage],))
        turned.meta["val"] = value[storage].meta["val"].t()
        return turned

    for k, op in enumerate(program.ops):
        of = effects(op)
        if isinstance(op, Wait):
            node = made.create_node(
                "call_function", sends.wait_tensor.default, (value[op.buffer],), name=op.name
            )
            node.meta["val"] = value[op.buffer].meta["val"]
            value[op.buffer], nodes[k] = node, node.name
        elif isinstance(op, Collective):
            size = len(op.ranks)
            if "all_gather" in op.target:
                call = (read(of.reads[0]), size, group)
                add(k, of.writes[0], sends.all_gather_into_tensor.default, call)
            else:
                call = (read(of.reads[0]), "avg", size, group)
                add(k, of.writes[0], sends.reduce_scatter_tensor.default, call)
        elif isinstance(op, Loop):
            given = tuple(read(n) for n in of.reads)
            add(
                k,
                of.writes[0],
                (aten.relu.default, aten.add.Tensor, aten.addcmul.default)[len(given) - 1],
                given,
            )
        elif "attention" in op.target:
            # Any product with the same inputs and results: costs are told, not derived.
            rows, columns = sizes_of(of.reads[0])[1], sizes_of(of.writes[0])[1]
            weight = made.placeholder(f"{op.name}_weight")
            weight.meta["val"] = torch.empty([rows, columns], dtype=torch.bfloat16, device="cuda")
            given = (*[read(n) for n in reversed(of.reads)], weight)
            add(k, of.writes[0], (aten.mm.default, aten.addmm.default)[len(given) - 2], given)
        else:
            add(k, of.writes[0], aten.mm.default, tuple(read(n) for n in of.reads))
    made.output(tuple(value[name] for name in program.outputs))
    return made, nodes


def is_order(graph: TaskGraph, order: list[int]) -> bool:
    """Whether an order has every task once, behind all that it needs."""
    place = {k: at for at, k in enumerate(order)}
    if len(place) != len(order) or len(place) != len(graph.tasks):
        return False
    return all(place[s] < place[k] for k in place for s in graph.before[k])
