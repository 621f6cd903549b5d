"""The fuzzer of scheduled loops runs, shares compiled code among programs, and sees a fault."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
from scheduled_fuzzer import FAMILIES, Shared, Threads, run_batch
from short_nests import short_nests_are_shared

from treadle.core.options import Options

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_each_family_stay_within(family: str, tmp_path: Path) -> None:
    seen: set[bytes] = set()
    tally = run_batch(family, 8, 7, Options(cache_dir=str(tmp_path)), seen)
    assert tally.cases > tally.programs > 0
    assert tally.failures == []
    again = run_batch(family, 8, 7, Options(cache_dir=str(tmp_path)), seen)
    assert again.programs == again.cases == 0, "no program is counted twice"


def test_threads_compute_what_one_computes(tmp_path: Path) -> None:
    threads = Threads(2)
    with short_nests_are_shared():
        tally = run_batch("wide", 8, 7, Options(cache_dir=str(tmp_path)), threads=threads)
    assert threads.asked
    assert tally.failures == []


def test_a_wrong_kernel_is_seen(tmp_path: Path) -> None:
    whole = Shared.compile

    def damaged(self: Shared, threads: Threads | None) -> None:
        for texts in self.texts.values():
            texts[:] = [re.sub(r"\] = \((v\d+)\);", r"] = (\1 + 1);", text) for text in texts]
        whole(self, threads)

    with patch.object(Shared, "compile", damaged):
        tally = run_batch("wide", 8, 7, Options(cache_dir=str(tmp_path)))
    assert tally.failures, "results that are one too large passed"
