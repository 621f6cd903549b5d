"""What torch's process groups tell: who is in one, and that nobody can compare orders."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from treadle.frontends.torch import process_groups  # noqa: E402

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


def test_a_group_that_torch_does_not_know_has_no_ranks() -> None:
    assert process_groups.ranks_of_group("") == ()
    assert process_groups.ranks_of_group("no such group") == ()
