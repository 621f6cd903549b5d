"""Measured times beside predicted ones, and the roofline that both are drawn on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from page_tools import command, data_of, seed, walked

from treadle.analysis.devices import DEVICES
from treadle.ir.program import Call, Kernel, Nest
from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program
from treadle.page.measured import TimedSlice, times_in_trace


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    path = tmp_path / "program.txt"
    path.write_text(show_program(demo_program()))
    return path


@pytest.fixture
def launches(demo: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [row["name"] for row in command(capsys, "kernels", demo)["kernels"]]


def report(source: Path, times: object, tmp_path: Path) -> dict[str, Any]:
    measured, out = tmp_path / "times.json", tmp_path / "out.html"
    measured.write_text(json.dumps(times))
    words = ["report", str(source), "-o", str(out), "--only", "--measured", str(measured)]
    assert main(words) == 0
    return data_of(out)


def test_times_by_name_stand_beside_the_predicted_ones(
    demo: Path, launches: list[str], tmp_path: Path
) -> None:
    shown = report(demo, {launches[0]: 12.5, "nobody": 3}, tmp_path)
    first, *rest = shown["kernels"]
    assert first["measured_us"] == 12.5
    assert not any("measured_us" in row for row in rest)
    told = shown["measured"]
    assert (told["launches"], told["us"]) == (1, 12.5)
    assert told["predicted_us"] == first["predicted_us"]
    assert told["notes"] == ["1 names are no launch here: nobody"]
    ratio = f"{12.5 / first['predicted_us']:.2f}"
    seen = walked(tmp_path / "out.html", "#kernels", f"#kernel?name={launches[0]}", "#roofline")
    assert "predictedmeasuredof it" in seen["#kernels"]  # columns
    assert ratio in seen["#kernels"]
    assert f"{ratio} times the predicted time" in seen[f"#kernel?name={launches[0]}"]
    assert "12.5" in seen["#roofline"]


def test_the_command_says_what_was_measured(
    demo: Path, launches: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = tmp_path / "t.json"
    times.write_text(json.dumps(dict.fromkeys(launches, 2)))
    out = tmp_path / "o.html"
    said = command(capsys, "report", demo, "-o", out, "--only", "--measured", times)
    assert said["measured"]["us"] == 2 * len(launches)
    assert main(["report", str(demo), "-o", str(out), "--only", "--measured", str(times)]) == 0
    assert f"for {len(launches)} of {len(launches)} launches" in capsys.readouterr().out


def test_every_launch_of_a_trace_of_several_runs_has_its_median(
    demo: Path, launches: list[str], tmp_path: Path
) -> None:
    events: list[dict[str, object]] = [{"ph": "M", "name": "process_name", "args": {}}]
    for run, factor in enumerate((1.0, 3.0, 100.0)):  # the last run was disturbed
        for k, name in enumerate(launches):
            events.append({"ph": "X", "name": f"k{k}_{name}", "ts": 1e6 * run + k, "dur": factor})
    shown = report(demo, {"traceEvents": events[::-1]}, tmp_path)
    assert [row["measured_us"] for row in shown["kernels"]] == [3.0] * len(launches)


def call(name: str, device: str = "cpu") -> Call:
    from treadle.ir.program import Extern

    return Extern(name=name, target="aten.mm.default", device=device)


def test_calls_of_one_operator_are_told_apart_by_their_order() -> None:
    ran = [TimedSlice("aten::mm", t, us, False) for t, us in enumerate((5, 50, 7, 70, 6, 60))]
    found = times_in_trace(ran, [call("first"), call("second")])
    assert found.us == {"first": 6, "second": 60}
    odd = times_in_trace(ran[:5], [call("first"), call("second")])
    assert odd.us == {}
    assert odd.notes == ["aten::mm is 5 times in the trace, for 2 launches"]


def test_a_call_on_a_gpu_takes_as_long_as_what_it_began_there() -> None:
    ran = [
        TimedSlice("aten::mm", 0, 4, False, link=17),
        TimedSlice("sm90_gemm", 9, 300, True, link=17),
        TimedSlice("splitk_sum", 12, 20, True, link=17),
    ]
    assert times_in_trace(ran, [call("mm", "cuda:0")]).us == {"mm": 320}
    assert times_in_trace(ran, [call("mm")]).us == {"mm": 4}


def test_a_launch_of_several_nests_is_their_sum_or_nothing() -> None:
    nests = [leaf for leaf in _nests() if isinstance(leaf, Nest)]
    both = Kernel(name="both", shape="loop", members=(nests[0], nests[1]))
    ran = [TimedSlice(f"k{k}_{nest.name}", k, 10.0 + k, True) for k, nest in enumerate(nests[:2])]
    assert times_in_trace(ran, [both]).us == {"both": 21.0}
    assert times_in_trace(ran[:1], [both]).us == {}


def _nests() -> list[Any]:
    from treadle.kernel.build import with_kernels

    return [leaf for op in with_kernels(demo_program()).ops for leaf in op.leaves]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "times.json:1: expected"),
        ("3", "found int"),
        ('{"traceEvents": 3}', "found int"),
        ('{"x": "fast"}', 'microseconds for "x"'),
        ('{"x": true}', "a number above 0"),
        ('{"x": -1}', "a number above 0"),
        ('{"x": 1}', "found none of them"),
        ("[]", "found none of them"),
        ('[{"ph": "X", "name": 3}, 7]', "found none of them"),
    ],
)
def test_a_file_without_times_is_one_line(
    text: str, words: str, demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times, out = tmp_path / "times.json", tmp_path / "out.html"
    times.write_text(text)
    assert main(["report", str(demo), "-o", str(out), "--measured", str(times)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "times.json" in said
    assert not out.exists()


def test_a_memory_problem_has_nothing_to_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "p.csv"
    table.write_text("id,lower,upper,size\na,0,2,4\n")
    out = tmp_path / "o.html"
    assert main(["report", str(table), "-o", str(out), "--measured", "x.json"]) == 2
    assert "--measured needs a file with launches" in capsys.readouterr().err


# ------------------------------------------------------------------------------- the roofline


def test_the_roof_is_the_machines_and_no_predicted_launch_is_above_it(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert main(["report", str(seed("000")), "-o", str(out), "--only", "--target", "h200"]) == 0
    shown = data_of(out)
    (roof,) = shown["roofs"].values()
    h200 = DEVICES["h200"]
    assert roof["machine"] == "h200"
    assert roof["gigabytes_per_second"] == h200.gigabytes_per_second
    assert {row["peak_gflops"] for row in shown["kernels"]} <= {
        h200.vector_gflops, h200.vector_gflops_64, h200.matrix_gflops_16, h200.matrix_gflops_32,
        h200.matrix_gflops_8,
    }  # fmt: skip
    dots = 0
    for row in shown["kernels"]:
        moved = row["bytes_loaded"] + row["bytes_stored"]
        least = max(moved / roof["gigabytes_per_second"], row["flops"] / row["peak_gflops"]) / 1e3
        assert row["predicted_us"] == pytest.approx(least + roof["launch_us"], abs=0.002)
        dots += bool(moved and row["flops"])
    seen = walked(out, "#roofline")
    assert seen["#roofline dots"] == dots > 0
    assert "flop per byte" in seen["#roofline said"]  # read out to those who use the keys
    assert seen["#roofline rows"] == len(shown["kernels"]) + 1  # the table holds every launch
