"""How long a collective takes: the best algorithm and protocol over the link that limits it.

    time = call latency + hops * hop latency + bytes / bandwidth

`bytes` is the whole message: what an all-gather delivers, what a reduce-scatter or an all-reduce is
given. Measured times (see `measured`) take the place of the model where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from treadle.analysis.comm.hardware import Hardware
from treadle.analysis.comm.kinds import CollectiveKind
from treadle.analysis.comm.measured import MeasuredTimes
from treadle.analysis.comm.protocols import (
    GENERATIONS,
    NETWORK_HOP_US,
    PROTOCOLS,
    RING,
    SEEN_LINKS,
    TREE,
    Algorithm,
    Generation,
    tree_share,
)
from treadle.ir.ranks import RankGroup


def hops(kind: CollectiveKind, ranks: int) -> int:
    """How many times a part of the message is sent on in a ring."""
    if kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL):
        return 2 * (ranks - 1)
    return 1 if kind is CollectiveKind.POINT_TO_POINT else ranks - 1


@dataclass(frozen=True)
class Estimate:
    """A predicted time and how it comes about."""

    us: float
    latency_us: float
    """What no bandwidth would save."""
    algorithm: str
    protocol: str
    link: str


@dataclass(frozen=True)
class CollectiveCosts:
    """What collectives cost on a machine."""

    hardware: Hardware
    measured: MeasuredTimes = field(default_factory=MeasuredTimes)

    def estimate(self, kind: CollectiveKind, message_bytes: int, group: RankGroup) -> Estimate:
        """The predicted time of one collective."""
        nodes = group.nodes(self.hardware.ranks_per_node)
        model = modelled(self.hardware, kind, message_bytes, group.size, nodes)
        known = self.measured.us(kind.value, group.size, message_bytes, self._model_us(kind, group))
        if known is None:
            return model
        return Estimate(known, min(known, model.latency_us), "measured", "measured", model.link)

    def us(self, kind: CollectiveKind, message_bytes: int, group: RankGroup) -> float:
        """The predicted microseconds of one collective."""
        return self.estimate(kind, message_bytes, group).us

    def saturation_bytes(self, kind: CollectiveKind, group: RankGroup) -> int:
        """The message from which on nine tenths of the time is bandwidth, as links were seen to be.

        Smaller ones are worth sending together; the figures are fitted to real jobs, where a hop
        costs far more than in an idle machine.
        """
        if group.size == 1:
            return 0
        is_inside = group.nodes(self.hardware.ranks_per_node) == 1
        link = self.hardware.node_link if is_inside else "network"
        seen = SEEN_LINKS.get((self.hardware.generation, link)) or SEEN_LINKS["any", link]
        latency = seen.call_us + hops(kind, group.size) * seen.hop_us
        return max(int(9 * latency * seen.gigabytes_per_second * 1000), seen.least_bytes)

    def _model_us(self, kind: CollectiveKind, group: RankGroup) -> Callable[[int], float]:
        nodes = group.nodes(self.hardware.ranks_per_node)
        return lambda size: modelled(self.hardware, kind, size, group.size, nodes).us


@lru_cache(maxsize=65536)
def modelled(
    hardware: Hardware, kind: CollectiveKind, message_bytes: int, ranks: int, nodes: int
) -> Estimate:
    """The fastest way to run one collective over so many ranks on so many nodes."""
    if ranks == 1:
        return Estimate(0.0, 0.0, "none", "none", "none")
    return min(_ways(hardware, kind, message_bytes, ranks, nodes), key=lambda e: e.us)


def _ways(
    hardware: Hardware, kind: CollectiveKind, message_bytes: int, ranks: int, nodes: int
) -> Iterator[Estimate]:
    link = hardware.node_link if nodes == 1 else "network"
    bus = _bus_bandwidth(hardware, message_bytes, nodes)
    limits = GENERATIONS[hardware.generation]
    for algorithm in (TREE, RING) if kind is CollectiveKind.ALL_REDUCE else (RING,):
        for number, protocol in enumerate(PROTOCOLS):
            if protocol == "ll128" and nodes > 1:
                continue  # its limits hold for links inside a node only
            rate = _rate(algorithm, protocol, bus, limits, nodes)
            if algorithm is TREE:
                rate *= 0.5 * tree_share(protocol, message_bytes)
                latency = _tree_us(hardware, number, ranks, nodes)
            else:
                rate *= _ring_share(kind, ranks)
                latency = _ring_us(hardware, kind, number, ranks, nodes)
            us = latency + message_bytes / (1000 * rate)
            yield Estimate(us, latency, algorithm.name, protocol, link)


def _bus_bandwidth(hardware: Hardware, message_bytes: int, nodes: int) -> float:
    if nodes == 1:
        return hardware.node_gigabytes_per_second
    least = hardware.network_share_of_two
    rate = hardware.network_gigabytes_per_second * (least + (1 - least) * min(1, (nodes - 1) / 7))
    if nodes > 2 and message_bytes > hardware.rail_bytes:
        rate *= (message_bytes / hardware.rail_bytes) ** hardware.rail_exponent
        # All rails of a node are all there is.
        rate = min(rate, hardware.network_gigabytes_per_second * hardware.ranks_per_node)
    return rate


def _rate(algorithm: Algorithm, protocol: str, bus: float, limits: Generation, nodes: int) -> float:
    """The bus bandwidth that a protocol reaches, GB/s."""
    scale = min(nodes, 3) - 1
    # Over the network the oldest generation's limit holds, whatever the GPUs.
    ll = (limits if nodes == 1 else GENERATIONS["volta"]).ll[scale]
    if protocol == "ll":
        return min(bus / 2 if algorithm is RING else bus / 3.8, ll)
    if protocol == "ll128":
        if algorithm is RING:
            return min(bus * 120 / 128, limits.channels * limits.ring_ll128[scale])
        return min(bus * 7 / 9, limits.channels * limits.tree_ll128[scale])
    if algorithm is RING:
        return bus
    return min(0.92 * bus, limits.channels * limits.tree_simple[scale])


def _ring_share(kind: CollectiveKind, ranks: int) -> float:
    """Message bytes for each byte that the busiest link carries."""
    if kind in (CollectiveKind.BROADCAST, CollectiveKind.POINT_TO_POINT):
        return 1.0
    return ranks / hops(kind, ranks)


def _hop_us(hardware: Hardware, algorithm: Algorithm, protocol: int, nodes: int) -> float:
    inside = algorithm.hop_us[hardware.node_link][protocol]
    return inside if nodes == 1 else max(inside, NETWORK_HOP_US[protocol])


def _ring_us(
    hardware: Hardware, kind: CollectiveKind, protocol: int, ranks: int, nodes: int
) -> float:
    count = hops(kind, ranks)
    crossings = min(count, (nodes - 1) * (2 if kind is CollectiveKind.ALL_REDUCE else 1))
    inside = _hop_us(hardware, RING, protocol, nodes)
    between = RING.hop_us["network"][protocol]
    return RING.call_us[protocol] + (count - crossings) * inside + crossings * between


def _tree_us(hardware: Hardware, protocol: int, ranks: int, nodes: int) -> float:
    """Along the ranks of a node, then up and down a tree of nodes."""
    inside = _hop_us(hardware, TREE, protocol, nodes)
    between = TREE.hop_us["network"][protocol]
    depth = nodes.bit_length() - 1
    return TREE.call_us[protocol] + 2 * ((ranks // nodes - 1) * inside + depth * between)
