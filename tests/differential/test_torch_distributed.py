"""Real jobs of two ranks on gloo: losses and weights as in eager mode, collectives as steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

pytestmark = pytest.mark.torch
WORKER = Path(__file__).parent / "distributed_worker.py"


def job(case: str, folder: Path, world: int = 2) -> list[dict[str, Any]]:
    """What every rank of a job says."""
    store = folder / "store"
    environment = {**os.environ, "TREADLE_CACHE_DIR": str(folder / "cache")}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), case, str(rank), str(world), str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(world)
    ]
    said = []
    try:
        for one in ranks:
            out, err = one.communicate(timeout=240)
            assert one.returncode == 0, err[-3000:]
            said += [json.loads(line) for line in out.strip().splitlines()[-1:]]
    finally:
        for one in ranks:
            if one.poll() is None:
                one.kill()
                one.wait()
    return said


def assert_as_in_eager(said: dict[str, Any]) -> None:
    """Losses, gradients and weights of five steps are eager's; memory is as predicted."""
    assert len(said["found"]) == 5
    assert said["found"] == pytest.approx(said["expected"], rel=1e-5)
    assert len(said["gradients"]) == 5
    assert min(said["gradients"]) > 0
    assert said["gradients_apart"] < 1e-5
    assert said["weights_apart"] < 1e-5
    assert said["graphs"] >= 2
    assert said["held"] == said["predicted"]
    assert len(said["held"]) >= 2


@pytest.mark.parametrize("case", ["ddp", "fsdp2", "tp", "gathered", "modelled"])
def test_two_ranks_train_as_in_eager_mode(case: str, tmp_path: Path) -> None:
    for said in job(case, tmp_path):
        assert_as_in_eager(said)
        if case in ("tp", "gathered", "modelled"):
            # These are in the graph: begun and waited for as steps of their own.
            assert said["collectives"]
            assert said["waits"] >= len(said["collectives"])
            assert said["ranks"] == [[0, 1]]
        if case in ("gathered", "modelled"):
            gathers = [t for t in said["collectives"] if "all_gather" in t]
            scatters = [t for t in said["collectives"] if "reduce_scatter" in t]
            assert len(gathers) >= 3
            assert len(scatters) == 3


@pytest.mark.parametrize(
    "case", [pytest.param("in_graph", marks=pytest.mark.slow), "in_graph_bucketed"]
)
def test_parameters_in_shards_are_gathered_and_reduced_inside_the_graph(
    case: str, tmp_path: Path
) -> None:
    for said in job(case, tmp_path):
        assert_as_in_eager(said)
        assert said["graphs"] == 2  # captured whole: one forward, one backward
        plain = [t for t in said["collectives"] if "coalesced" not in t]
        assert {t.split(".")[1] for t in plain} == {
            "all_gather_into_tensor",
            "reduce_scatter_tensor",
        }
        assert said["waits"] == 64  # one for each of 32 parameters in each direction
        assert said["between"] > 0  # work runs while they are under way
        assert (len(plain) < 64) == (case == "in_graph_bucketed")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ddp", "fsdp2", "tp_fsdp2", "in_graph"])
def test_four_ranks_train_as_in_eager_mode(case: str, tmp_path: Path) -> None:
    for rank, said in enumerate(job(case, tmp_path, world=4)):
        assert_as_in_eager(said)
        if case == "tp_fsdp2":
            # The tensor-parallel group of each pair of neighbours, numbered as in the job.
            assert said["ranks"] == [[rank // 2 * 2, rank // 2 * 2 + 1]]


def test_ranks_that_order_collectives_differently_are_told_instead_of_hanging(
    tmp_path: Path,
) -> None:
    first, second = job("disagree", tmp_path)
    assert first["error"] == ""
    assert "COL008" in second["error"]
    assert "rank 1: 0: gather of 16 bytes; 1: gather of 8 bytes" in second["error"]
    assert "rank 0: 0: gather of 8 bytes; 1: gather of 16 bytes" in second["error"]


@pytest.mark.parametrize("case", ["dies", pytest.param("lags", marks=pytest.mark.slow)])
def test_a_rank_that_is_gone_or_late_is_torchs_error_with_the_collective_and_the_line(
    case: str, tmp_path: Path
) -> None:
    (said,) = job(case, tmp_path)
    assert "RuntimeError" in said["kinds"]  # torch's own, and its words as they are
    assert said["words"]
    (note,) = said["notes"]
    line = next(
        number
        for number, text in enumerate(WORKER.read_text().splitlines(), 1)
        if "# the user's line" in text
    )
    assert "_c10d_functional.all_reduce.default in group '0' of ranks (0, 1)" in note
    assert f"distributed_worker.py:{line}" in note


def test_a_message_of_several_tensors_is_sent_in_parts(tmp_path: Path) -> None:
    for said in job("parts", tmp_path):
        assert said["apart"] < 1e-4
        assert len(said["parts"]) > 1
        assert sum(said["parts"]) == 4


def test_many_gathers_are_under_way_at_once_and_none_in_the_form_that_breaks_gloo(
    tmp_path: Path,
) -> None:
    for said in job("in_flight", tmp_path):
        assert said["apart"] < 1e-5
        assert said["most"] > 8
        # gloo's threads free the name of a gather of a list twice if two of them end together.
        assert said["names"] == ["c10d::_allgather_base_"]


def test_what_is_under_way_when_a_run_fails_writes_to_nobody_elses_memory(tmp_path: Path) -> None:
    failed, went_on = job("fails_in_flight", tmp_path)
    assert "nobody waits" in failed["told"]
    assert failed["changed"] == 0
    assert went_on["apart"] < 1e-5
