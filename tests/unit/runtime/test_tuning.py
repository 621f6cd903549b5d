"""A device decides between schedules: what is asked, measured, kept, handed on, and left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

from treadle.analysis.cost import cost_model
from treadle.codegen.lower import lower
from treadle.core.context import Ctx
from treadle.core.errors import TreadleError, UsageError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.numerics import TORCH_ON_GPU
from treadle.ir.program import Kernel, Nest, Program
from treadle.ir.text import parse_program
from treadle.runtime import triton_kernels
from treadle.runtime.cuda_driver import DriverError
from treadle.runtime.hosts.triton import build_triton_program, tuning_for
from treadle.runtime.triton_builds import BuildError, KernelBinary
from treadle.runtime.triton_kernels import TritonKernels
from treadle.runtime.tuning.answers import (
    TunedAnswer,
    TunedAnswers,
    all_kept,
    answers_kept,
    as_file,
    for_device,
    read_answers,
)
from treadle.runtime.tuning.decide import ROUNDS, Outcome, Trial, chosen_of, decide
from treadle.runtime.tuning.questions import Question, questions_of, with_schedules
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline

LARGE = """treadle 1
program p
inputs x, w, table, places
outputs y, z, g

buffer x : f32[8192, 4096] on cuda:0
buffer w : f32[8192, 4096] on cuda:0
buffer table : f32[50000, 1024] on cuda:0
buffer places : i64[16384] on cuda:0
buffer y : f32[8192, 4096] on cuda:0
buffer z : f32[8192] on cuda:0
buffer g : f32[16384, 1024] on cuda:0

loop softplus on cuda:0 for i in 33554432 {
  %0 = load x[i]
  %1 = exp %0
  %2 = log1p %1
  store y[i] = %2
}

loop total on cuda:0 for i in 8192 reduce r in 4096 {
  %0 = load w[4096*i + r]
  %1 = mul %0, %0
  %2 = reduce sum %1
  store z[i] = %2
}

loop gather on cuda:0 for i in 16384, j in 1024 {
  %0 = load places[i]
  %1 = indirect %0 size 50000 check
  %2 = load table[1024*%1 + j]
  store g[1024*i + j] = %2
}
"""


def built(text: str = LARGE) -> Program:
    program = replace(parse_program(text), numerics=TORCH_ON_GPU)
    ctx = Ctx(Options(), cost_model(program, Options()), Journal())
    return run_pipeline(program, ctx, KERNELS)


def questions(program: Program, most: int = 3) -> list[Question]:
    return questions_of(program, cost_model(program, Options()), most)


def steps_of(program: Program) -> dict[str, tuple[object, ...]]:
    members = [m for op in program.ops if isinstance(op, Kernel) for m in op.members]
    return {m.name: m.schedule for m in members if isinstance(m, Nest)}


# ------------------------------------------------------------------------------- stand-ins


class FakeClock:
    """A device that takes as long as it is told: by the number of the candidate."""

    def __init__(self, times: Callable[[int], float], room: int = 1 << 40) -> None:
        self.times, self._room = times, room
        self.held = self.most_held = self.rounds = 0
        self.number = 0

    def room(self) -> int:
        return self._room

    @contextmanager
    def scratch(self, sizes: Sequence[tuple[int, bool]]) -> Iterator[Sequence[int]]:
        self.held += sum(size for size, _ in sizes)
        self.most_held, self.number = max(self.held, self.most_held), 0
        yield [(k + 1) << 32 for k in range(len(sizes))]
        self.held -= sum(size for size, _ in sizes)

    @contextmanager
    def recorded(self, start: Callable[[int], None], launches: int) -> Iterator[Any]:
        start(7)
        number, self.number = self.number, self.number + 1
        yield Replayed(self, self.times(number))


@dataclass
class Replayed:
    clock: FakeClock
    time: float

    def nanoseconds(self) -> float:
        self.clock.rounds += 1
        return self.time


@dataclass
class FakeGpu:
    """A device that only says what it is."""

    measures: FakeClock | str
    number: int = 0
    arch: str = "sm_90"
    name: str = "NVIDIA H200"
    is_alone: bool = True

    def stream(self) -> int:
        return 3

    def here(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def clock(self, most: int | None) -> FakeClock | str:
        return self.measures


@dataclass
class FakeBuilds:
    """Compilers that are done at once, or never for what is spare."""

    is_slow: bool = False
    jobs: list[tuple[str, bool]] = field(default_factory=list)
    known: dict[str, Future[KernelBinary]] = field(default_factory=dict)

    def submit(self, job: Any, is_spare: bool = False) -> Future[KernelBinary]:
        if job.key not in self.known:
            self.jobs.append((job.key, is_spare))
            made: Future[KernelBinary] = Future()
            warps = dict(job.options)["num_warps"]
            if not (is_spare and self.is_slow):
                made.set_result(KernelBinary(job.name, "cubin", warps, 0, 0, job.text.encode()))
            self.known[job.key] = made
        return self.known[job.key]


@dataclass
class Launched:
    name: str
    warps: int
    grid: int
    text: str
    stream: int
    arguments: list[int]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Launched]:
    """What is launched, on a machine that has no driver."""
    seen: list[Launched] = []

    def launcher(made: KernelBinary, at: int, grid: int, count: int) -> Callable[..., None]:
        def start(stream: int, arguments: list[int]) -> None:
            assert len(arguments) == count
            text = made.binary.decode()
            seen.append(Launched(made.name, made.warps, grid, text, stream, arguments))

        return start

    monkeypatch.setattr(triton_kernels, "launcher", launcher)
    monkeypatch.setattr(triton_kernels, "load_function", lambda made, device: 1)
    return seen


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> FakeBuilds:
    made = FakeBuilds()
    monkeypatch.setattr(triton_kernels, "compilers_for", lambda arch, options: made)
    return made


def made_kernels(gpu: FakeGpu, tmp_path: Path, program: Program | None = None, **more: Any) -> Any:
    options = Options(cache_dir=str(tmp_path / "cache"), **more)
    return build_triton_program(program or built(), options, gpu).kernels


def second_is_fast(k: int) -> float:
    return 50e3 if k == 1 else 100e3


def settled(kernels: TritonKernels) -> None:
    """Wait for compilers, decide, and wait until that is kept."""
    kernels.settle()
    if kernels._tuning is not None:
        kernels._tuning.answers.finish()


def run_once(kernels: TritonKernels) -> None:
    settled(kernels)
    addresses = [(k + 1) << 20 for k in range(len(kernels.storages))]
    kernels.bind(0, len(kernels.kernels), [])(addresses)


# ------------------------------------------------------------------------------- what is asked


def test_at_most_three_schedules_are_asked_about_and_the_first_is_the_models() -> None:
    program = built()
    found = {q.measured[0]: q for q in questions(program)}
    usual = steps_of(program)
    assert set(found) == {"softplus_nest", "total_nest"}
    for name, q in found.items():
        assert q.candidates[0].steps == usual[name]
        assert 2 <= len(q.candidates) <= 3
        assert len({c.steps for c in q.candidates}) == len(q.candidates)
        best = min(c.predicted_ns for c in q.candidates)
        assert all(c.predicted_ns <= 1.25 * best for c in q.candidates[1:])


def test_nests_whose_data_decide_where_they_read_are_left_to_the_model() -> None:
    assert "gather_nest" in steps_of(built())
    assert "gather_nest" not in {n for q in questions(built(), most=20) for n in q.nests}


SMALL = """treadle 1
program p
inputs x
outputs y

buffer x : f32[64, 64] on cuda:0
buffer y : f32[64, 64] on cuda:0

loop a on cuda:0 for i in 4096 {
  %0 = load x[i]
  %1 = exp %0
  store y[i] = %1
}
"""


def test_short_launches_are_not_worth_asking_about() -> None:
    assert questions(built(SMALL)) == []


def test_keys_hold_in_any_process_and_tell_apart_what_differs() -> None:
    program = built()
    (first, second) = questions(program)
    again = questions(built(LARGE.replace("softplus", "other").replace("cuda:0", "cuda:1")))
    assert [q.key for q in again] == [first.key, second.key]
    other = questions(built(LARGE.replace("f32[8192, 4096]", "f16[8192, 4096]")))
    assert not {first.key, second.key} & {q.key for q in other}
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_tuning as t;"
    code += "print(*[q.key for q in t.questions(t.built())])"
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, here], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [first.key, second.key]


@pytest.mark.exhaustive
def test_all_schedules_compile_for_a_device_that_is_not_here() -> None:
    from treadle.codegen.triton.unit import write_triton
    from treadle.runtime.triton_ahead import compile_ahead_for

    program = built()
    tried = 0
    for q in questions(program, most=20):
        for c in q.candidates:
            changed = with_schedules(program, dict.fromkeys(q.nests, c.steps))
            for one in compile_ahead_for(write_triton(lower(changed)), "sm_90"):
                assert one.spilled == 0, (one.name, c.text)
            tried += 1
    assert tried >= 10


def test_other_schedules_change_nothing_but_schedules() -> None:
    program = built()
    (q, _) = questions(program)
    changed = with_schedules(program, dict.fromkeys(q.nests, q.candidates[1].steps))
    assert with_schedules(program, {}) is program
    assert steps_of(changed)[q.nests[0]] == q.candidates[1].steps
    same = dict.fromkeys(q.nests, q.candidates[0].steps)
    assert with_schedules(changed, same) == program


# ------------------------------------------------------------------------------- measuring


def test_the_fastest_wins_if_it_is_clearly_faster() -> None:
    assert chosen_of([100.0, 50.0, 60.0]) == 1
    assert chosen_of([100.0, 99.0, 98.0]) == 0
    assert chosen_of([100.0, -1.0, 90.0]) == 2


def test_what_wins_is_launched_from_the_first_run_on(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    clock = FakeClock(second_is_fast)
    kernels = made_kernels(FakeGpu(clock), tmp_path)
    asked = questions(built())
    run_once(kernels)
    real = [one for one in launched if one.stream == 3]
    assert [(v.ok, v.code, v.facts["by"]) for v in kernels.tuned] == [
        (True, "TUN001", "measured")
    ] * 2
    assert len(real) == 3
    for q in asked:
        changed = with_schedules(built(), dict.fromkeys(q.nests, q.candidates[1].steps))
        wanted = TritonKernels(lower(changed), Options(cache_dir=str(tmp_path))).unit
        names = {one.name for one in wanted.functions.values() if q.nests[0] in one.name}
        (text,) = [wanted.module_of(name) for name in names]
        assert text in [one.text for one in real]
    assert clock.held == 0


def test_trials_touch_scratch_alone(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    kernels = made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path)
    settled(kernels)
    assert launched
    assert all(a >= 1 << 32 for one in launched for a in one.arguments)
    assert {one.stream for one in launched} == {7}


def test_nothing_is_measured_twice_in_a_process(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    clock = FakeClock(second_is_fast)
    kernels = made_kernels(FakeGpu(clock), tmp_path)
    run_once(kernels)
    rounds = clock.rounds
    run_once(kernels)
    assert clock.rounds == rounds > 0


def test_the_next_process_knows_and_compiles_the_winner_alone(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_once(made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path))
    first = [one for one in launched if one.stream == 3]
    launched.clear()
    later = FakeBuilds()
    monkeypatch.setattr(triton_kernels, "compilers_for", lambda arch, options: later)
    clock = FakeClock(second_is_fast)
    kernels = made_kernels(FakeGpu(clock), tmp_path)
    run_once(kernels)
    assert launched == first
    assert clock.rounds == 0
    assert [v.facts["by"] for v in kernels.tuned] == ["earlier run"] * 2
    # The very same jobs: their binaries are found, nothing is compiled for a second time.
    assert {key for key, _ in later.jobs} <= {key for key, _ in builds.jobs}
    assert not any(is_spare for _, is_spare in later.jobs)


def test_another_device_asks_again(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    settled(made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path))
    clock = FakeClock(second_is_fast)
    settled(made_kernels(FakeGpu(clock, name="NVIDIA H100"), tmp_path))
    assert clock.rounds > 0


@pytest.mark.parametrize("why", ["capture", "group", "off", "memory"])
def test_where_nothing_may_be_measured_the_models_word_is_taken(
    why: str, tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    clock = FakeClock(second_is_fast, room=1 << 20)
    gpu = FakeGpu(clock if why in ("off", "memory") else "not now", is_alone=why != "group")
    kernels = made_kernels(gpu, tmp_path, autotune=why != "off")
    usual = TritonKernels(lower(built()), Options(cache_dir=str(tmp_path))).unit
    run_once(kernels)
    assert {one.text for one in launched} == {usual.module_of(n) for n in usual.functions}
    assert not any(kernels.tuned)
    assert clock.rounds == 0
    assert all_kept(Options(cache_dir=str(tmp_path / "cache"))) == []


def test_ranks_of_a_group_do_not_look_at_what_one_of_them_found_earlier(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    settled(made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path))
    before = len(builds.jobs)
    kernels = made_kernels(FakeGpu("in a group", is_alone=False), tmp_path)
    settled(kernels)
    assert [v.facts["reason"] for v in kernels.tuned] == ["ranks must compute the same bits"] * 2
    assert len(builds.jobs) == before, "nothing is compiled for trials that cannot be"


def test_compilers_that_are_slow_are_not_waited_for(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    builds.is_slow = True
    kernels = made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path)
    begin = time.monotonic()
    run_once(kernels)
    assert time.monotonic() - begin < 30
    assert [v.facts["reason"] for v in kernels.tuned] == ["no other schedule was compiled"] * 2


def test_an_answer_that_lacks_a_candidate_is_used_and_not_kept(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    builds.is_slow = True
    kernels = made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path)
    spare = [key for key, is_spare in builds.jobs if is_spare]
    done = next(iter(builds.known.values())).result()
    builds.known[spare[0]].set_result(done)
    for key in spare[2:]:
        builds.known[key].set_exception(BuildError("it cannot be compiled"))
    settled(kernels)
    (first, second) = kernels.tuned
    assert (first.ok, first.facts["measured_us"][2]) == (True, None)
    assert second.facts["reason"] == "no other schedule was compiled"
    assert all_kept(Options(cache_dir=str(tmp_path / "cache"))) == []


# ------------------------------------------------------------------------------- budgets


def trials_of(sizes: Mapping[str, tuple[int, bool]] | None = None) -> list[Trial]:
    def start(k: int, where: Mapping[str, int]) -> Callable[[int], None]:
        return lambda stream: None

    return [Trial(q, sizes or {"x": (1 << 20, True)}, start) for q in questions(built())]


def test_trials_end_when_the_budget_is_spent() -> None:
    trials = trials_of()
    enough = decide(trials, FakeClock(second_is_fast))
    assert [one.refused for one in enough] == ["", ""]
    little = decide(trials, FakeClock(lambda k: 1e9))
    assert [bool(one.refused) for one in little] == [False, True]
    none = decide(trials, FakeClock(second_is_fast), budget_ns=1.0)
    assert all("longer than all trials may" in one.refused for one in none)


def test_a_device_that_fails_leaves_the_rest_to_the_model() -> None:
    class Broken(FakeClock):
        @contextmanager
        def recorded(self, start: Callable[[int], None], launches: int) -> Iterator[Any]:
            raise DriverError("the driver cannot do cuGraphLaunch: out of memory")
            yield

    clock = Broken(second_is_fast)
    found = decide(trials_of(), clock)
    assert [one.chosen for one in found] == [0, 0]
    assert all("out of memory" in one.refused for one in found)


def test_each_candidate_is_measured_in_turn() -> None:
    clock = FakeClock(lambda k: 100e3 - k)
    (first, *_) = decide(trials_of()[:1], clock)
    assert clock.rounds == ROUNDS * len(first.question.candidates)
    assert first.measured_ns == (100e3, 100e3 - 1, 100e3 - 2)


def test_what_is_far_slower_is_measured_once() -> None:
    clock = FakeClock(lambda k: 100e3 if k < 2 else 900e3)
    (first, *_) = decide(trials_of()[:1], clock)
    assert clock.rounds == 2 * ROUNDS + 1
    assert first.measured_ns == (100e3, 100e3, 900e3)


# ------------------------------------------------------------------------------- kept, handed on


def answers(tmp_path: Path, launched: list[Launched]) -> list[TunedAnswer]:
    settled(made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path))
    return all_kept(Options(cache_dir=str(tmp_path / "cache")))


def test_a_file_answers_where_nothing_is_measured(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    found = answers(tmp_path, launched)
    file = tmp_path / "tuned.json"
    file.write_text(as_file(found))
    assert list(read_answers(str(file))) == found
    clock = FakeClock(second_is_fast)
    kernels = made_kernels(FakeGpu(clock), tmp_path / "2", autotune=False, tuned=str(file))
    assert [v.facts["by"] for v in kernels.tuned if v] == ["file"] * 2
    run_once(kernels)
    assert clock.rounds == 0


DAMAGE: Mapping[str, Callable[[str], str]] = {
    "cut": lambda text: text[: len(text) // 2],
    "version": lambda text: text.replace('"treadle_tuned": 1', '"treadle_tuned": 9'),
    "changed": lambda text: text.replace('"chosen": 1', '"chosen": 0', 1),
    "other": lambda text: "[]",
    "no list": lambda text: '{"treadle_tuned": 1, "answers": 3}',
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_one_error_and_is_not_used(
    how: str, tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(DAMAGE[how](as_file(answers(tmp_path, launched))))
    with pytest.raises(TreadleError) as caught:
        read_answers(str(file))
    assert caught.value.code == "TUN002"
    assert len(str(caught.value).splitlines()) == 1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            options = Options(cache_dir=str(tmp_path / "3"), autotune=False, tuned=str(file))
            tuning = tuning_for(built(), options, FakeGpu("no"))
            assert tuning is not None
            assert steps_of(tuning.program) == steps_of(built())
    assert [str(w.message).startswith("TUN002") for w in said] == [True]


@pytest.mark.parametrize(
    ("field_of", "value"),
    [("chosen", 7), ("chosen", True), ("steps", []), ("measured_ns", [1.0]), ("gpu", 3)],
)
def test_answers_that_cannot_be_are_refused(field_of: str, value: object, tmp_path: Path) -> None:
    good = {"key": "k", "gpu": "g", "arch": "sm_90", "triton": "3", "kernel": "n"}
    row = {**good, "steps": ["a", "b"], "predicted_ns": [1, 2], "measured_ns": [2, 1], "chosen": 1}
    from treadle.runtime.tuning.answers import _digest, answer_of

    assert answer_of(row).chosen == 1
    rows = [{**row, field_of: value}]
    file = tmp_path / "tuned.json"
    file.write_text(json.dumps({"treadle_tuned": 1, "sha256": _digest(rows), "answers": rows}))
    with pytest.raises(TreadleError, match="expected answer 1 to have"):
        read_answers(str(file))


def test_an_answer_about_other_schedules_is_none(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    found = answers(tmp_path, launched)
    lying = [replace(a, steps=("tune warps 32", *a.steps[1:])) for a in found]
    file = tmp_path / "tuned.json"
    file.write_text(as_file(lying))
    options = Options(cache_dir=str(tmp_path / "4"), autotune=False, tuned=str(file))
    tuning = tuning_for(built(), options, FakeGpu("no"))
    assert tuning is not None
    assert steps_of(tuning.program) == steps_of(built())


def test_an_entry_that_is_damaged_on_disk_is_asked_again(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    options = Options(cache_dir=str(tmp_path / "cache"))
    for one in answers(tmp_path, launched):
        path = answers_kept(options).find(one.place)
        assert path is not None
        os.truncate(path, 10)
    clock = FakeClock(second_is_fast)
    settled(made_kernels(FakeGpu(clock), tmp_path))
    assert clock.rounds > 0
    assert len(all_kept(options)) == 2


def test_a_device_without_a_name_has_the_only_one_of_its_kind() -> None:
    one = TunedAnswer("k", "A", "sm_90", "3", "n", ("a", "b"), (1.0, 1.0), (2.0, 1.0), 1)
    two = replace(one, gpu="B")
    assert for_device([one], "", "sm_90", "3", "f") == {"k": one}
    assert for_device([one], "", "sm_100", "3", "f") == {}
    assert for_device([one], "", "sm_90", "4", "f") == {}
    assert for_device([one, two], "B", "sm_90", "3", "f") == {"k": two}
    with pytest.raises(UsageError, match="knows several devices that are sm_90: A, B"):
        for_device([one, two], "", "sm_90", "3", "f")


ANSWER = TunedAnswer("k", "A", "sm_90", "3", "n", ("a", "b"), (1.0, 1.0), (2.0, 1.0), 1)


def test_the_first_answer_stays(tmp_path: Path) -> None:
    options = Options(cache_dir=str(tmp_path))
    for chosen in (1, 0):
        known = TunedAnswers(options, "A", "sm_90")
        known.keep([replace(ANSWER, chosen=chosen)])
        known.finish()
    assert all_kept(options) == [ANSWER]
    assert Outcome(questions(built())[0]).chosen == 0


def test_two_processes_that_measure_at_once_leave_one_answer_to_each_question(
    tmp_path: Path,
) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_tuning as t;"
    code += "known = t.TunedAnswers(t.Options(cache_dir=sys.argv[2]), 'A', 'sm_90');"
    code += "rows = [t.replace(t.ANSWER, key=str(n), chosen=int(sys.argv[3])) for n in range(30)];"
    code += "known.keep(rows)"
    here, cache = str(Path(__file__).parent), str(tmp_path / "cache")
    both = [subprocess.Popen([sys.executable, "-c", code, here, cache, chosen]) for chosen in "01"]
    assert [one.wait(120) for one in both] == [0, 0]
    found = all_kept(Options(cache_dir=cache))
    assert sorted(a.key for a in found) == sorted(map(str, range(30)))


# ------------------------------------------------------------------------------- shared launches


def several(count: int, elements: int) -> Program:
    """A step of an optimizer over tensors that are alike, as one kernel."""
    names = [f"{k}{n}" for k in "xy" for n in range(count)]
    buffers = [f"buffer {name} : f32[{elements}] on cuda:0" for name in names]
    loops = [
        f"  loop a{n} on cuda:0 for i in {elements} {{\n    %0 = load x{n}[i]\n"
        f"    %1 = sqrt %0\n    store y{n}[i] = %1\n  }}"
        for n in range(count)
    ]
    ins, outs = ", ".join(names[:count]), ", ".join(names[count:])
    head = ["treadle 1", "program p", f"inputs {ins}", f"outputs {outs}", "", *buffers, ""]
    return built("\n".join([*head, "foreach all on cuda:0 {", *loops, "}", ""]))


@pytest.mark.parametrize(("count", "elements"), [(3, 4 << 20), (20, 1 << 18)])
def test_nests_that_share_launches_are_asked_about_together(
    count: int,
    elements: int,
    tmp_path: Path,
    launched: list[Launched],
    builds: FakeBuilds,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = several(count, elements)
    (q,) = questions(program)
    assert len(q.measured) == len(q.nests) == count
    run_once(made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path, program))
    first = [one for one in launched if one.stream == 3]
    touched = sorted(a for one in first for a in one.arguments)
    assert len(touched) == len(set(touched)) == 2 * count
    launched.clear()
    later = FakeBuilds()
    monkeypatch.setattr(triton_kernels, "compilers_for", lambda arch, options: later)
    run_once(made_kernels(FakeGpu("no clock"), tmp_path, program))
    assert launched == first
    assert {key for key, _ in later.jobs} <= {key for key, _ in builds.jobs}


REPEATED = """treadle 1
program p
inputs x0
outputs x3

buffer x0 : f32[8192, 4096] on cuda:0
buffer x1 : f32[8192, 4096] on cuda:0
buffer x2 : f32[8192, 4096] on cuda:0
buffer x3 : f32[8192, 4096] on cuda:0
"""


def test_layers_are_asked_about_once_and_change_together(
    tmp_path: Path, launched: list[Launched], builds: FakeBuilds
) -> None:
    loops = [
        f"\nloop a{k} on cuda:0 for i in 33554432 {{\n  %0 = load x{k}[i]\n  %1 = exp %0\n"
        f"  store x{k + 1}[i] = %1\n}}\n"
        for k in range(3)
    ]
    program = built(REPEATED + "".join(loops))
    (q,) = questions(program)
    assert (len(q.nests), len(q.measured)) == (3, 1)
    run_once(made_kernels(FakeGpu(FakeClock(second_is_fast)), tmp_path, program))
    real = [one for one in launched if one.stream == 3]
    assert len({one.text for one in real}) == 1
    assert len(real) == 3
    assert len({tuple(one.arguments) for one in real}) == 3
