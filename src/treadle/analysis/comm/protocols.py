"""What NCCL's algorithms and protocols make of a link: published tuning constants, as data.

A collective sends its data around a ring or up and down a tree, in one of three protocols: LL and
LL128 trade bandwidth for latency, Simple the other way round. The constants are those of NCCL's
own tuning model (latency of a call and of a hop in microseconds, bandwidth limits in GB/s).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PROTOCOLS = ("ll", "ll128", "simple")


@dataclass(frozen=True)
class Algorithm:
    """Ring or tree: latencies for each protocol, in microseconds."""

    name: str
    call_us: tuple[float, float, float]
    """What every call costs."""
    hop_us: Mapping[str, tuple[float, float, float]]
    """What every hop costs, by the kind of link."""


RING = Algorithm(
    "ring",
    (6.6, 14.0, 8.4),
    {"nvlink": (0.6, 1.9, 3.4), "pcie": (1.0, 2.5, 5.7), "network": (2.7, 4.0, 14.0)},
)
TREE = Algorithm(
    "tree",
    (6.8, 14.0, 8.4),
    {"nvlink": (0.6, 1.25, 4.0), "pcie": (1.0, 1.9, 4.0), "network": (5.0, 8.5, 14.0)},
)
NETWORK_HOP_US = (1.0, 1.0, 3.0)
"""No hop of a collective that crosses the network takes less, for each protocol."""


@dataclass(frozen=True)
class Generation:
    """Bandwidth limits of a generation of GPUs, over one, two, and more nodes."""

    channels: int
    """Rings that run side by side."""
    ll: tuple[float, float, float]
    """The most that LL carries, GB/s."""
    ring_ll128: tuple[float, float, float]
    """The most that a channel carries, GB/s."""
    tree_ll128: tuple[float, float, float]
    tree_simple: tuple[float, float, float]


GENERATIONS: Mapping[str, Generation] = {
    "volta": Generation(
        2, (39.0, 39.0, 20.4), (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (26.5, 18.5, 10.0)
    ),
    "ampere": Generation(
        8, (87.7, 22.5, 19.0), (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (24.0, 23.6, 17.8)
    ),
    "hopper": Generation(
        16, (141.0, 45.0, 35.0), (36.7, 36.7, 36.7), (36.7, 36.7, 29.0), (38.7, 41.4, 36.0)
    ),
    "blackwell": Generation(
        32, (282.0, 90.0, 70.0), (40.0, 40.0, 40.0), (55.6, 31.67, 20.0), (70.0, 42.8, 24.0)
    ),
}

# Trees reach less than their bandwidth with messages of medium size: the share by the power of two
# of the size, 64 bytes first; beyond the table it is all of it.
_SHARES = {
    "ll": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    "ll128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    "simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
}
TREE_SHARES: Mapping[str, tuple[float, ...]] = {
    name: tuple(map(float, row.split())) for name, row in _SHARES.items()
}


def tree_share(protocol: str, message_bytes: int) -> float:
    """The share of its bandwidth that a tree reaches with a message of this size."""
    row = TREE_SHARES[protocol]
    power = max(message_bytes >> 6, 1).bit_length() - 1
    return row[power] if power < len(row) else 1.0


@dataclass(frozen=True)
class SeenLink:
    """A link as profiles of real jobs showed it."""

    gigabytes_per_second: float
    hop_us: float
    call_us: float
    least_bytes: int = 0
    """No message below this was seen to fill it."""


SEEN_LINKS: Mapping[tuple[str, str], SeenLink] = {
    ("volta", "nvlink"): SeenLink(14, 50, 10),
    ("ampere", "nvlink"): SeenLink(22, 45, 10),
    ("hopper", "nvlink"): SeenLink(36, 40, 10),
    ("blackwell", "nvlink"): SeenLink(60, 30, 10),
    ("volta", "network"): SeenLink(11, 14, 30, 75 << 20),
    ("ampere", "network"): SeenLink(11, 14, 30, 75 << 20),
    ("any", "network"): SeenLink(22, 12, 30, 100 << 20),
    ("any", "pcie"): SeenLink(10, 60, 15),
}
"""By generation and kind of link; `any` for the generations not named."""
