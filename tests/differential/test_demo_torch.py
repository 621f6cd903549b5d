"""`treadle demo` with torch: its table, and its exit code when a result is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch import compat  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402
from treadle.frontends.torch.demo import measure as demo_measure  # noqa: E402
from treadle.frontends.torch.demo.model import (  # noqa: E402
    Decoder,
    ModelSizes,
    next_token_loss,
    rotary_angles,
    rotate,
)
from treadle.lab.cli import main  # noqa: E402

pytestmark = pytest.mark.torch

TINY = ModelSizes(words=32, width=16, inner=24, layers=1, tokens=8)


def test_the_table_has_both_jobs_and_both_backends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert "all results are eager's" in out
    for words in ("kernels", "compile s", "ms", "peak predicted", "max error"):
        assert words in out
    rows = [line.split() for line in out.splitlines() if line.startswith("  ")]
    assert sum("treadle" in r for r in rows) == 2
    assert sum("eager" in r for r in rows) == 2
    assert not any("TOR00" in line for line in out.splitlines())


def test_json_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--rounds", "1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert [(r["job"], r["backend"]) for r in data["rows"]] == [
        ("forward", "eager"),
        ("forward", "treadle"),
        ("training step", "eager"),
        ("training step", "treadle"),
    ]
    for eager, ours in (data["rows"][:2], data["rows"][2:]):
        assert 0 < ours["kernels"] + ours["calls"] < eager["calls"]
        assert 0 <= ours["max_error"] < data["tolerance"]
        assert ours["compile_s"] > 0
        assert ours["ms"] > 0
        assert ours["speed"] == pytest.approx(eager["ms"] / ours["ms"])
        assert ours["peak_bytes"] > 0
        assert eager["peak_measured"] > 0


@pytest.mark.skipif(
    not compat.library_is_narrower(),
    reason="README's table is of an AMD processor with AVX-512: elsewhere other products are ours",
)
def test_the_table_in_the_readme_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All but what differs from run to run: seconds, milliseconds, the last digits of errors."""
    assert main(["demo", "--rounds", "1"]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```\n(job .*?)```", readme, re.S)
    said = [line.split() for line in block.splitlines()]
    assert said[0] in printed
    assert len(said) == 5
    for row in said[1:]:
        assert _lasting(row) in [_lasting(other) for other in printed if len(other) == len(row)]


def _lasting(row: list[str]) -> tuple[str, ...]:
    """Job, backend, kernels and calls, then both peaks with their units."""
    at = next((k for k, word in enumerate(row) if word in ("eager", "treadle")), 0)
    after = next((k for k in range(at + 1, len(row)) if row[k] == "x"), at + 5)
    return (*row[: at + 3], *row[after + 1 : -1])


def off_by_one(settings: Any, gm: Any, inputs: Any) -> Callable[..., Any]:
    return lambda *given: [x + 1 if torch.is_floating_point(x) else x for x in gm(*given)]


def test_a_wrong_result_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_measure, "compile_with", off_by_one)
    assert main(["demo", "--rounds", "1"]) == 1
    assert "RESULTS DIFFER: forward" in capsys.readouterr().out


def test_a_peer_that_fails_is_a_note_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(row: Any) -> Callable[..., Any]:
        return lambda function: lambda *given: 1 // 0

    peers = {**demo_measure.PREPARE, "inductor": fails}
    monkeypatch.setattr(demo_measure, "PREPARE", peers)
    rows = demo_measure.measure(TINY, ("inductor",), rounds=1)
    notes = {row.job: row.notes for row in rows if row.backend == "inductor"}
    said = ["it failed: ZeroDivisionError"]
    assert notes == {"forward": said, "training step": said}


def test_no_rounds_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--rounds", "0"]) == 2
    assert "--rounds" in capsys.readouterr().err


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    demo_measure.measure(TINY, (), rounds=1, threads=before + 1)
    assert torch.get_num_threads() == before


def test_the_measured_peak_is_what_a_step_holds_at_once() -> None:
    def step() -> dict[str, Any]:
        first = torch.empty(1000)
        del first
        return {"second": torch.empty(250).add_(1)}

    assert demo_measure.measured_peak(step) == 4000


def test_no_number_is_infinitely_far_off() -> None:
    wanted = {"a": torch.ones(2)}
    assert demo_measure.distance({"a": torch.tensor([1.0, float("nan")])}, wanted) == float("inf")
    assert demo_measure.distance({"a": torch.tensor([1.0, 1.5])}, wanted) == pytest.approx(0.5)


def test_the_model_sees_no_later_token() -> None:
    torch.manual_seed(0)
    model, ids = Decoder(TINY), torch.arange(8)[None]
    changed = ids.clone()
    changed[0, 5] = 31
    scores, other = model(ids), model(changed)
    torch.testing.assert_close(scores[:, :5], other[:, :5])
    assert not torch.allclose(scores[:, 5:], other[:, 5:])


def test_rotary_scores_depend_on_the_distance_only() -> None:
    cosine, sine = rotary_angles(8, 4)
    turned = rotate(torch.randn(4, generator=torch.Generator().manual_seed(0)), cosine, sine)
    scores = turned @ turned.T
    torch.testing.assert_close(scores[0, 2], scores[3, 5])
    torch.testing.assert_close(turned.norm(dim=1), turned[0].norm().expand(8))


@pytest.mark.exhaustive
def test_another_backend_beside_it_changes_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer, here one that only runs the graph, must not make us compile and count twice."""

    def peer(row: Any) -> Callable[..., Any]:
        return partial(demo_measure._compiled_apart, backend="aot_eager")

    monkeypatch.setattr(demo_measure, "PREPARE", {**demo_measure.PREPARE, "inductor": peer})
    both = demo_measure.measure(TINY, ("treadle", "inductor"), rounds=2)
    alone = demo_measure.measure(TINY, ("treadle",), rounds=2)
    figures = [
        [(r.job, r.kernels, r.calls, r.peak_bytes) for r in rows if r.backend == "treadle"]
        for rows in (both, alone)
    ]
    assert figures[0] == figures[1]
    assert all(row.kernels for row in both if row.backend == "treadle")


def test_the_timing_compiles_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    real = demo_measure.predicted_peak

    def counted(one: Any) -> int:
        built.append(one.name)
        return real(one)

    monkeypatch.setattr(demo_measure, "predicted_peak", counted)

    def peer(row: Any) -> Callable[..., Any]:
        return partial(demo_measure._compiled_apart, backend="aot_eager")

    monkeypatch.setattr(demo_measure, "PREPARE", {**demo_measure.PREPARE, "inductor": peer})
    demo_measure.measure(TINY, ("treadle", "inductor"), rounds=3)
    assert built == ["graph", "forward", "backward"]


CODE = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], '''...''')
cpp_fused_mul_1 = async_compile.cpp_pybinding(['float*'], '''...''')

def call(args):
    arg0_1, = args
    cpp_fused_add_0(arg0_1, buf0)
    extern_kernels.mm(buf0, arg0_1, out=buf1)
    cpp_fused_mul_1(buf1)
    cpp_fused_add_0(buf1, buf2)
    triton_poi_2.run(buf2, stream=stream0)
    return (buf2, )
"""


def test_the_peers_kernels_are_those_it_launches() -> None:
    assert demo_measure.launches_in(CODE) == 3
    more = CODE.replace("\ndef", "\ntriton_poi_2 = async_compile.triton('t', '''...''')\n\ndef")
    assert demo_measure.launches_in(more) == 4


@pytest.mark.exhaustive
def test_beside_the_peer_we_need_less_memory() -> None:
    rows = demo_measure.measure(ModelSizes(), ("treadle", "inductor"), rounds=1)
    for job in demo_measure.JOBS:
        ours, peer = [r for r in rows if r.job == job and r.backend != "eager"]
        if peer.notes:
            pytest.skip(f"the peer does not run here: {peer.notes[0]}")
        assert peer.kernels, "its code was not seen"
        assert ours.peak_measured < peer.peak_measured
        assert ours.peak_bytes == pytest.approx(ours.peak_measured, abs=1024)


@pytest.mark.parametrize("products, most", [("library", 1.005), ("auto", 1.04)])
def test_outputs_that_lie_idle_at_the_peak_do_not_raise_it(products: str, most: float) -> None:
    """An output that takes in temporaries is held from the first of them to the end."""
    built: list[Any] = []
    asked = Options(products=products)
    torch.manual_seed(0)
    model, ids = Decoder(ModelSizes()), torch.arange(128).reshape(2, 64)
    backend = partial(compile_with, Settings(asked, strict=True, report=built.append))
    torch.compile(lambda x: next_token_loss(model(x), x), backend=backend)(ids).backward()
    plans = [one.runner.bound().memory for one in built]
    assert [plan.peak_bytes <= plan.lower_bound * most for plan in plans] == [True, True]
