"""Two ranks on gloo whose collectives take known time: what was predicted is what happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ranks import Ranks

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

from treadle.analysis.comm.machine import machine_of  # noqa: E402
from treadle.analysis.comm.measured import measured_in_trace  # noqa: E402
from treadle.analysis.comm.simulate import simulate  # noqa: E402
from treadle.analysis.comm.tasks import MeasuredTask, TaskGraph, TaskKind  # noqa: E402
from treadle.core.options import Options  # noqa: E402
from treadle.ir.text import parse_program  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
WITHIN = 0.15


class Job:
    """What the ranks of a job said, and the files they left."""

    def __init__(self, ranks: Ranks, folder: Path, world: int = 2) -> None:
        self.folder = folder
        words = [[str(k), str(world), str(folder)] for k in range(world)]
        self.said = ranks.job("overlap_worker", words, folder)


@pytest.fixture(scope="module")
def job(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(ranks, tmp_path_factory.mktemp("job"))


def test_a_run_with_delayed_collectives_waits_as_long_as_predicted(job: Job) -> None:
    for said in job.said:
        for row in (said["given"], said["ours"]):
            assert row["exposed_us"] == pytest.approx(row["predicted_exposed_us"], rel=WITHIN)
            assert row["makespan_us"] == pytest.approx(row["predicted_makespan_us"], rel=WITHIN)


def test_exposed_time_shrinks_as_predicted(job: Job) -> None:
    for said in job.said:
        given, ours = said["given"], said["ours"]
        assert ours["predicted_exposed_us"] < given["predicted_exposed_us"] / 2
        won = given["exposed_us"] - ours["exposed_us"]
        predicted = given["predicted_exposed_us"] - ours["predicted_exposed_us"]
        assert won == pytest.approx(predicted, rel=WITHIN)


def test_the_simulator_replays_a_trace(job: Job) -> None:
    for rank, said in enumerate(job.said):
        graph = replayed(job.folder, rank)
        measured = said["traced"]["makespan_us"]
        assert simulate(graph).makespan_us == pytest.approx(measured, rel=WITHIN)


def test_a_trace_of_gloo_calibrates_collectives(job: Job) -> None:
    found = measured_in_trace(str(job.folder / "trace0.json"))
    sizes = {key: [size for size, _ in row] for key, row in found.rows.items()}
    assert sizes == {("all_gather", 2): [4 << 20], ("reduce_scatter", 2): [2 << 20]}
    assert all(us > 0 for row in found.rows.values() for _, us in row)


def replayed(folder: Path, rank: int) -> TaskGraph:
    """The program of a traced run as tasks that take the time which the trace says."""
    program = parse_program((folder / f"program{rank}.txt").read_text())
    graph = machine_of(program, Options()).tasks(program)
    events = json.loads((folder / f"trace{rank}.json").read_text())["traceEvents"]
    spans = sorted((e["ts"], e["dur"], e["name"]) for e in events if e.get("ph") == "X")
    steps = [(a, us, n.split("::")[1]) for a, us, n in spans if n.startswith("treadle::")]
    runs = [(begin, us) for begin, us, name in spans if name.startswith("gloo:")]
    of = {task.name: task for task in graph.tasks}
    assert {n for _, _, n in steps} == {n for n, t in of.items() if t.us > 0}
    sent = [step for step in steps if of[step[2]].kind is TaskKind.COLLECTIVE]
    assert len(sent) == len(runs)
    measured = {name: MeasuredTask(us) for _, us, name in steps}
    free = 0.0
    for (begin, launch, name), (ran, us) in zip(sent, runs, strict=True):
        # gloo may run two at once; here they run in turn, and each ends when it did.
        end = max(ran + us, free)
        measured[name] = MeasuredTask(max(0.0, end - max(begin + launch, free)), launch)
        free = end
    return graph.with_times(measured)
