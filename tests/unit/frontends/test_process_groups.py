"""What torch's process groups tell: who is in one, and that nobody can compare orders."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from treadle.analysis.cost import Roofline  # noqa: E402
from treadle.core.context import Ctx  # noqa: E402
from treadle.core.journal import Journal  # noqa: E402
from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch import process_groups  # noqa: E402
from treadle.frontends.torch.capture import compile  # noqa: E402
from treadle.schedule.overlap.agreement import RankOrderError, collective_order  # noqa: E402
from treadle.schedule.overlap.bucketing import with_buckets  # noqa: E402
from treadle.testing.fsdp_programs import fsdp_program  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_store_that_cannot_compare_is_said_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Plain:
        def add(self, key: str, count: int) -> int:
            return count

        def compare_set(self, key: str, old: str, new: str) -> Any:
            raise NotImplementedError("this store has no compare_set\nand more")

    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", Plain)
    with caplog.at_level(logging.WARNING):
        assert process_groups._first_written("key", 0, "text") is None
    assert caplog.messages == [
        "ranks cannot compare the order of their collectives: this store has no compare_set"
    ]


class OneJob:
    """A store that ranks of one process share; each asks in its turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rank, self.numbers, self.texts = 0, Counter[str](), dict[str, bytes]()
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_world_size", lambda: 2)
        monkeypatch.setattr(dist, "get_rank", lambda: self.rank)
        monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: self)

    def add(self, key: str, count: int) -> int:
        self.numbers[key] += count
        return self.numbers[key]

    def compare_set(self, key: str, old: str, new: str) -> bytes:
        return self.texts.setdefault(key, new.encode())


def test_a_rank_that_sends_together_what_another_sends_alone_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = Options.make(comm="model", hardware="h100-8", world=8)
    asked = fsdp_program(1, 8, 256, 64)
    together = with_buckets(asked, Ctx(options, Roofline(asked), Journal(level=0)), 1 << 30)
    assert together is not asked
    job = OneJob(monkeypatch)
    process_groups.agree_on_order(together, asked)
    job.rank = 1
    with pytest.raises(RankOrderError, match=r"rank 0.*_coalesced"):
        process_groups.agree_on_order(asked, asked)
    process_groups.agree_on_order(together, asked)  # asked again: another question


def test_a_rank_that_cannot_compile_a_graph_says_in_which_order_torch_runs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(key: Any, options: Options) -> Any:
        raise RuntimeError("no compiler here")

    def summed(x: Any) -> Any:
        own = torch.ops._c10d_functional
        return own.wait_tensor(own.all_reduce(x * 2, "sum", "0")) + 1

    told: list[tuple[Any, Any]] = []
    monkeypatch.setattr(compile, "_made", refused)
    monkeypatch.setattr(compile, "agree_on_order", lambda *given: told.append(given))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with torch.no_grad(), pytest.warns(UserWarning, match="no compiler here"):
            found = torch.compile(summed, backend="treadle")(torch.ones(3))
    finally:
        dist.destroy_process_group()
    assert found.tolist() == [3.0] * 3
    ((program, asked),) = told
    assert program is asked
    (group,) = collective_order(program).groups
    assert group[0] == "0"


def test_a_group_that_torch_does_not_know_has_no_ranks() -> None:
    assert process_groups.ranks_of_group("") == ()
    assert process_groups.ranks_of_group("no such group") == ()
