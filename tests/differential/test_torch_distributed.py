"""Real jobs of two ranks on gloo: losses and weights as in eager mode, collectives as steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

pytestmark = pytest.mark.torch
WORKER = Path(__file__).parent / "distributed_worker.py"


def only_if_asked(case: str) -> Any:
    """A case that shows on more ranks what two show already."""
    return pytest.param(case, marks=pytest.mark.exhaustive)


Job = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def job(ranks: Ranks, tmp_path: Path) -> Job:
    """Runs a case on so many ranks; gives what every one says."""

    def run(case: str, world: int = 2, seeds: range = range(0)) -> list[dict[str, Any]]:
        rest = [str(tmp_path / "store"), str(seeds.start), str(seeds.stop)]
        words = [[case, str(k), str(world), *rest] for k in range(world)]
        return ranks.job(WORKER.stem, words, tmp_path)

    return run


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


@pytest.mark.parametrize(
    "case",
    # Four ranks do what these two do.
    [
        "ddp",
        "gathered",
        "modelled",
        *[pytest.param(n, marks=pytest.mark.exhaustive) for n in ("fsdp2", "tp")],
    ],
)
def test_two_ranks_train_as_in_eager_mode(case: str, job: Job) -> None:
    for said in job(case):
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


@pytest.mark.parametrize("case", [only_if_asked("in_graph"), "in_graph_bucketed"])
def test_parameters_in_shards_are_gathered_and_reduced_inside_the_graph(
    case: str, job: Job
) -> None:
    for said in job(case):
        assert_as_in_eager(said)
        assert said["graphs"] == 2  # captured whole: one forward, one backward
        plain = [t for t in said["collectives"] if "coalesced" not in t]
        assert {t.split(".")[1] for t in plain} == {
            "all_gather_into_tensor",
            "reduce_scatter_tensor",
        }
        # One for each of the 16 parameters of a layer in each direction.
        assert said["waits"] == (32 if case == "in_graph_bucketed" else 64)
        assert said["between"] > 0  # work runs while they are under way
        assert (len(plain) < said["waits"]) == (case == "in_graph_bucketed")


@pytest.mark.parametrize("case", [only_if_asked("in_graph_again"), "in_graph_limited"])
def test_weights_are_gathered_again_in_the_backward_alike_on_all_ranks(case: str, job: Job) -> None:
    """If asked, or where memory is short: ranks have other limits, and must do the same."""
    ranks = job(case)
    for said in ranks:
        assert_as_in_eager(said)
        assert said["graphs"] == 2
        gathers = [t for t in said["collectives"] if "all_gather" in t]
        scatters = [t for t in said["collectives"] if "reduce_scatter" in t]
        assert len(gathers) > len(scatters) == 16
        assert said["held"][0] < 39_296  # what the forward holds if it keeps all that it gathers
    assert ranks[0]["collectives"] == ranks[1]["collectives"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["tp_fsdp2", *[only_if_asked(c) for c in ("ddp", "fsdp2", "in_graph")]]
)
def test_four_ranks_train_as_in_eager_mode(case: str, job: Job) -> None:
    for rank, said in enumerate(job(case, world=4)):
        assert_as_in_eager(said)
        if case == "tp_fsdp2":
            # The tensor-parallel group of each pair of neighbours, numbered as in the job.
            assert said["ranks"] == [[rank // 2 * 2, rank // 2 * 2 + 1]]


def test_ranks_that_order_collectives_differently_are_told_instead_of_hanging(
    job: Job,
) -> None:
    first, second = job("disagree")
    assert first["error"] == ""
    assert "COL008" in second["error"]
    assert "rank 1: 0: gather of 16 bytes; 1: gather of 8 bytes" in second["error"]
    assert "rank 0: 0: gather of 8 bytes; 1: gather of 16 bytes" in second["error"]


@pytest.mark.parametrize("case", ["dies", pytest.param("lags", marks=pytest.mark.slow)])
def test_a_rank_that_is_gone_or_late_is_torchs_error_with_the_collective_and_the_line(
    case: str, job: Job
) -> None:
    (said,) = job(case)
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


def test_a_message_of_several_tensors_is_sent_in_parts(job: Job) -> None:
    for said in job("parts"):
        assert said["apart"] < 1e-4
        assert len(said["parts"]) > 1
        assert sum(said["parts"]) == 4


def test_many_gathers_are_under_way_at_once_and_none_in_the_form_that_breaks_gloo(
    job: Job,
) -> None:
    for said in job("in_flight"):
        assert said["apart"] < 1e-5
        assert said["most"] > 8
        # gloo's threads free the name of a gather of a list twice if two of them end together.
        assert said["names"] == ["c10d::_allgather_base_"]


def test_what_is_under_way_when_a_run_fails_writes_to_nobody_elses_memory(job: Job) -> None:
    failed, went_on = job("fails_in_flight")
    assert "nobody waits" in failed["told"]
    assert failed["changed"] == 0
    assert went_on["apart"] < 1e-5


@pytest.mark.parametrize(
    ("world", "seeds"),
    [
        (2, range(4)),
        pytest.param(2, range(4, 64), marks=pytest.mark.exhaustive),
        pytest.param(4, range(64, 88), marks=pytest.mark.exhaustive),
    ],
)
def test_random_programs_that_communicate_are_eagers(world: int, seeds: range, job: Job) -> None:
    for said in job("random", world, seeds):
        assert [row["seed"] for row in said["programs"][::2]] == list(seeds)
        assert not [row for row in said["programs"] if not row["apart"] < 1e-4]
        assert any(row["groups"] == 2 for row in said["programs"])
