"""Machines that ranks run on: how many share a node, and the links inside and between nodes.

    HARDWARE["h100-8"]       one node of eight H100 on NVLink; more nodes if the job has more ranks
    HARDWARE["h100-8x16"]    sixteen such nodes: 128 ranks unless another world is named

A calibration file (see `analysis/calibration`) may describe others or change these:

    {"treadle_calibration": 1,
     "hardware": {"ours": {"like": "h100-8", "ranks_per_node": 4, "compute_slowdown": 0.08,
                           "node_gigabytes_per_second": 300, "network_gigabytes_per_second": 40}},
     "collectives": [{"kind": "all_gather", "ranks": 8, "bytes": 67108864, "us": 190}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from treadle.analysis.calibration import bad_calibration, calibration_of, changed_table
from treadle.analysis.comm.protocols import GENERATIONS
from treadle.core.errors import UsageError
from treadle.core.suggest import suggestion_notes
from treadle.ir.ranks import RankGroup


@dataclass(frozen=True)
class LinkClass:
    """The kind of link that limits a collective."""

    name: str
    """nvlink, pcie or network"""
    gigabytes_per_second: float
    """What each rank sends and receives at once through it."""


@dataclass(frozen=True)
class Hardware:
    """Nodes of equal GPUs and the links between them."""

    name: str
    device: str
    """The entry of the device table that compute is costed by."""
    generation: str
    """Whose limits the collective library has on it (`protocols.GENERATIONS`)."""
    ranks_per_node: int
    node_link: str
    """nvlink or pcie"""
    node_gigabytes_per_second: float
    network_gigabytes_per_second: float
    nodes: int = 1
    network_share_of_two: float = 0.77
    """What two nodes get of the network; eight or more get all of it."""
    rail_exponent: float = 0.17
    """Large messages over three or more nodes use more rails: bandwidth grows with this power."""
    rail_bytes: float = 50e6
    """From this size on."""
    compute_slowdown: float = 0.0
    """How much longer kernels take while a collective is under way: it uses cores and memory."""

    @property
    def world(self) -> int:
        """All ranks of its nodes."""
        return self.ranks_per_node * self.nodes

    def link_of(self, group: RankGroup) -> LinkClass:
        """The link that a collective of this group is limited by."""
        if group.nodes(self.ranks_per_node) == 1:
            return LinkClass(self.node_link, self.node_gigabytes_per_second)
        return LinkClass("network", self.network_gigabytes_per_second)


# name | device | generation | ranks per node | link in a node, GB/s | network GB/s
_TABLE = """
a100-8  | a100 | ampere    | 8 | nvlink | 240 | 25
h100-8  | h100 | hopper    | 8 | nvlink | 370 | 50
h200-8  | h200 | hopper    | 8 | nvlink | 370 | 50
b200-8  | b200 | blackwell | 8 | nvlink | 720 | 50
pcie-8  | a100 | ampere    | 8 | pcie   |  24 | 25
gloo-8  | cpu  | volta     | 8 | pcie   |   2 |  1
"""


def _row(row: str) -> Hardware:
    name, device, generation, ranks, link, inside, network = (c.strip() for c in row.split("|"))
    rates = float(inside), float(network)
    return Hardware(name, device, generation, int(ranks), link, *rates)


HARDWARE: Mapping[str, Hardware] = {
    h.name: h for h in [_row(row) for row in _TABLE.strip().splitlines()]
}


def hardware_named(name: str, table: Mapping[str, Hardware] = HARDWARE) -> Hardware:
    """The machine called so; `NAMExNODES` is several of its nodes (`h100-8x16`)."""
    if name in table:
        return table[name]
    base, _, count = name.rpartition("x")
    if base in table and count.isdecimal() and 0 < int(count) <= 1 << 17:
        return replace(table[base], name=name, nodes=int(count))
    several = "several nodes: h100-8x16 is sixteen nodes of h100-8"
    notes = (*suggestion_notes(name, sorted(table), "hardware"), several)
    raise UsageError(f"unknown hardware '{name}'", code="COL007", notes=notes)


# ----------------------------------------------------------------------- calibration files


def read_hardware(file: str, base: Mapping[str, Hardware] = HARDWARE) -> dict[str, Hardware]:
    """The table of machines with the entries of a calibration file put in."""
    entries = calibration_of(file).get("hardware", {})
    return changed_table(file, "hardware", entries, base, _checked)


WORDS: Mapping[str, tuple[str, ...]] = {
    "generation": tuple(GENERATIONS),
    "node_link": ("nvlink", "pcie"),
}


def _checked(file: str, key: str, kind: object, value: object) -> object:
    if kind == "str":
        allowed = WORDS.get(key)
        if not isinstance(value, str) or (allowed is not None and value not in allowed):
            wanted = "one of " + ", ".join(allowed) if allowed else "a word"
            raise bad_calibration(file, f'{wanted} for "{key}"', json.dumps(value))
        return value
    may_be_nothing = key in ("compute_slowdown", "rail_exponent")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < float("inf")
        or (value == 0 and not may_be_nothing)
        or (kind == "int" and value != int(value))
    ):
        what = "a whole number of at least 1" if kind == "int" else "a number of more than 0"
        what = "a number of at least 0" if may_be_nothing else what
        raise bad_calibration(file, f'{what} for "{key}"', json.dumps(value))
    return int(value) if kind == "int" else float(value)
