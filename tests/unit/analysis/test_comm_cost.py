"""What collectives cost: the published model, links by where ranks are, measured times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.analysis.comm.cost import CollectiveCosts
from treadle.analysis.comm.hardware import HARDWARE, hardware_named, read_hardware
from treadle.analysis.comm.kinds import CollectiveKind, kind_of_collective
from treadle.analysis.comm.measured import MeasuredTimes, measured_in_trace, read_measured
from treadle.analysis.devices import DEVICES, read_calibration
from treadle.core.errors import InputError, UsageError
from treadle.ir.ranks import RankGroup, show_ranks

GATHER, REDUCE = CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE
ENTRY: dict[str, object] = {"kind": "all_gather", "ranks": 8, "bytes": 1000, "us": 5.0}
SIZES = (512, 64 << 10, 1 << 20, 64 << 20)


def ranks(count: int, step: int = 1) -> RankGroup:
    return RankGroup("g", tuple(range(0, count * step, step)))


@pytest.mark.parametrize(
    ("kind", "count", "us"),
    [
        (REDUCE, 8, (15.010, 16.308, 35.924, 545.335)),
        (GATHER, 8, (10.805, 11.454, 21.262, 276.868)),
        (GATHER, 16, (23.348, 29.422, 118.977, 3204.533)),
        (REDUCE, 64, (50.956, 84.005, 321.551, 5612.129)),
    ],
)
def test_the_model_gives_the_figures_of_the_peer(
    kind: CollectiveKind, count: int, us: tuple[float, ...]
) -> None:
    costs = CollectiveCosts(HARDWARE["a100-8"])
    found = [costs.us(kind, size, ranks(count)) for size in SIZES]
    assert found == pytest.approx(us, abs=5e-4)


@pytest.mark.parametrize(
    ("count", "size"), [(2, 10_890_000), (8, 64_350_000), (16, 78_643_200), (64, 90_288_000)]
)
def test_messages_that_fill_a_link_are_as_large_as_the_peer_says(count: int, size: int) -> None:
    assert CollectiveCosts(HARDWARE["a100-8"]).saturation_bytes(GATHER, ranks(count)) == size


def test_one_rank_sends_nothing_and_more_ranks_take_longer() -> None:
    costs = CollectiveCosts(HARDWARE["h100-8"])
    for kind in CollectiveKind:
        assert costs.us(kind, 1 << 20, ranks(1)) == 0
    for kind in (GATHER, REDUCE, CollectiveKind.ALL_TO_ALL, CollectiveKind.BROADCAST):
        times = [costs.us(kind, 1 << 26, ranks(n)) for n in (8, 16, 128, 1024)]
        assert times == sorted(times)


def test_the_link_depends_on_where_the_ranks_are() -> None:
    hardware = HARDWARE["h100-8"]
    assert hardware.link_of(ranks(8)).name == "nvlink"
    assert hardware.link_of(ranks(2, 8)).name == "network"  # neighbours on different nodes
    costs = CollectiveCosts(hardware)
    assert costs.us(GATHER, 1 << 26, ranks(2, 8)) > costs.us(GATHER, 1 << 26, ranks(2))


def test_a_reduction_of_large_messages_is_a_ring_and_of_small_ones_over_nodes_a_tree() -> None:
    costs = CollectiveCosts(HARDWARE["h100-8"])
    assert costs.estimate(REDUCE, 1 << 30, ranks(8)).algorithm == "ring"
    assert costs.estimate(REDUCE, 512, ranks(512)).algorithm == "tree"


def test_kinds_are_known_by_the_names_of_both_peers() -> None:
    assert kind_of_collective("_c10d_functional.reduce_scatter_tensor.default").value == (
        "reduce_scatter"
    )
    assert kind_of_collective("all-gather-start") is GATHER
    assert kind_of_collective("torch.ops._c10d_functional.all_to_all_single").value == "all_to_all"


def test_groups_grow_with_the_job_unless_they_fill_a_part_of_it() -> None:
    whole, part, across = ranks(64), RankGroup("tp", tuple(range(8, 16))), ranks(8, 8)
    assert whole.at_world(64, 512).size == 512
    assert part.at_world(64, 512) == part
    assert across.at_world(64, 512).ranks == tuple(range(0, 512, 8))
    assert show_ranks(across.ranks) == "0..56 by 8"
    assert show_ranks((0, 3, 5)) == "(0, 3, 5)"
    with pytest.raises(ValueError, match="twice or below 0"):
        RankGroup("g", (0, 0))


def test_several_nodes_are_named_by_their_number() -> None:
    assert hardware_named("h100-8x16").world == 128
    with pytest.raises(UsageError, match="unknown hardware 'h1000-8'") as caught:
        hardware_named("h1000-8")
    assert caught.value.code == "COL007"
    assert "h100-8" in str(caught.value)


def calibration(folder: Path, **rest: object) -> str:
    file = folder / "calibration.json"
    file.write_text(json.dumps({"treadle_calibration": 1, **rest}))
    return str(file)


def test_a_calibration_file_describes_machines_and_measured_times(tmp_path: Path) -> None:
    rows = [
        {"kind": "all_gather", "ranks": 8, "bytes": 1000, "us": 10},
        {"kind": "all_gather", "ranks": 8, "bytes": 3000, "us": 30},
    ]
    ours = {"like": "h100-8", "ranks_per_node": 4, "compute_slowdown": 0.1}
    file = calibration(tmp_path, hardware={"ours": ours}, collectives=rows)
    hardware = read_hardware(file)["ours"]
    assert (hardware.ranks_per_node, hardware.node_gigabytes_per_second) == (4, 370)
    costs = CollectiveCosts(hardware, read_measured(file))
    assert [costs.us(GATHER, n, ranks(8)) for n in (1000, 2000, 3000)] == [10, 20, 30]
    plain = CollectiveCosts(hardware)
    assert costs.us(GATHER, 10**8, ranks(8)) == pytest.approx(
        30 * plain.us(GATHER, 10**8, ranks(8)) / plain.us(GATHER, 3000, ranks(8))
    )
    assert costs.us(GATHER, 2000, ranks(4)) == plain.us(GATHER, 2000, ranks(4))


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ({"hardware": []}, "an object under"),
        ({"hardware": {"a": {"like": "b"}}}, '"like" with one of'),
        ({"hardware": {"h100-8": {"ranks": 1}}}, "a field such as"),
        ({"hardware": {"h100-8": {"ranks_per_node": 0}}}, "a whole number of at least 1"),
        ({"hardware": {"h100-8": {"node_link": "rope"}}}, "one of nvlink, pcie"),
        ({"collectives": {}}, "a list under"),
        ({"collectives": [{"kind": "all_gather"}]}, "kind, ranks, bytes and us"),
        ({"collectives": [{"kind": "x", "ranks": 1, "bytes": 1, "us": 1}]}, "one of all_gather"),
        ({"collectives": [ENTRY | {"us": float("inf")}]}, 'a number of at least 0 for "us"'),
        ({"collectives": [ENTRY | {"bytes": 1.5}]}, 'a whole number of at least 0 for "bytes"'),
        ({"collectives": [ENTRY | {"ranks": 0}]}, 'a whole number of at least 1 for "ranks"'),
        ({"traces": "trace.json"}, "a list of files under"),
        ({"traces": ["not there.json"]}, "a readable file"),
        ({"collective": []}, "sections such as collectives"),
    ],
)
def test_a_calibration_file_that_is_wrong_is_one_line(
    rest: dict[str, object], words: str, tmp_path: Path
) -> None:
    file = calibration(tmp_path, **rest)
    read = read_hardware if "hardware" in rest else read_measured
    with pytest.raises(InputError, match=words) as caught:
        read(file)
    assert caught.value.code == "COST001"


def test_a_trace_of_the_profiler_is_measured_times(tmp_path: Path) -> None:
    about = {"Collective name": "_allgather_base", "Group size": 8, "dtype": "BFloat16",
             "In msg nelems": 100, "Out msg nelems": 800}  # fmt: skip
    events = [{"ph": "X", "name": "ncclDevKernel", "dur": us, "args": about} for us in (10, 12, 50)]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": [*events, {"ph": "M", "name": "x"}]}))
    measured = measured_in_trace(str(file))
    assert measured == MeasuredTimes({("all_gather", 8): ((1600, 12.0),)})
    file.write_text("{}")
    with pytest.raises(InputError, match="traceEvents"):
        measured_in_trace(str(file))


def test_a_calibration_file_takes_times_from_traces_beside_it(tmp_path: Path) -> None:
    events = [
        {
            "name": "ncclDevKernel",
            "dur": us,
            "args": {"Collective name": name, "Group size": 8, "dtype": "Float",
                     "In msg nelems": 100},
        }
        for name, us in (("allreduce", 70), ("_allgather_base", 30))
    ]  # fmt: skip
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    (tmp_path / "rank1.json").write_text(json.dumps({"traceEvents": events[:1]}))
    traces = ["rank0.json", "rank1.json"]
    file = calibration(tmp_path, traces=traces)
    shown = {("all_reduce", 8): ((400, 70.0),), ("all_gather", 8): ((400, 30.0),)}
    assert read_measured(file).rows == shown
    file = calibration(tmp_path, traces=traces, collectives=[ENTRY])
    assert read_measured(file).rows == shown | {("all_gather", 8): ((1000, 5.0),)}
    assert read_calibration(file) == DEVICES  # nothing is said of devices
    with pytest.raises(InputError, match="a calibration file names it"):
        read_measured(str(tmp_path / "rank0.json"))


def test_launches_in_a_trace_are_not_taken_for_collectives(tmp_path: Path) -> None:
    about = {
        "Collective name": "allreduce",
        "Group size": 8,
        "dtype": "Float",
        "In msg nelems": 100,
    }
    launch = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "dur": 3, "args": about}
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "dur": 70, "args": about}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": [launch, kernel]}))
    assert measured_in_trace(str(file)) == MeasuredTimes({("all_reduce", 8): ((400, 70.0),)})


def test_what_gloo_ran_is_measured_by_the_calls_that_began_it(tmp_path: Path) -> None:
    def begun(name: str, ts: float, shape: list[int], *numbers: str) -> dict[str, object]:
        about = {"Input type": ["float"], "Input Dims": [shape], "Concrete Inputs": ["", *numbers]}
        return {"name": f"_c10d_functional::{name}", "ts": ts, "dur": 1, "args": about}

    events = [
        begun("all_gather_into_tensor", 1, [4, 8], "2", ""),
        {"name": "gloo:all_gather", "ts": 2, "dur": 50, "args": {}},
        {"name": "_c10d_functional::wait_tensor", "ts": 3, "dur": 40, "args": {}},
        begun("all_reduce", 60, [10]),
        {"name": "gloo:all_reduce", "ts": 61, "dur": 7, "args": {}},
    ]
    file = tmp_path / "trace.json"
    data = {"traceEvents": events, "distributedInfo": {"world_size": 4}}
    file.write_text(json.dumps(data))
    found = measured_in_trace(str(file))
    assert found.rows == {("all_gather", 2): ((256, 50.0),), ("all_reduce", 4): ((40, 7.0),)}
    # One more run of gloo's, and nobody can tell which call began which.
    file.write_text(json.dumps({**data, "traceEvents": [*events, events[1]]}))
    assert measured_in_trace(str(file)).rows == {}
