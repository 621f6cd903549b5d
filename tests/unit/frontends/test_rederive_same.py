"""Accesses that the peer spells over merged and re-split loops are recognised, others are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treadle.frontends.inductor_dump import parse_dump, rederive
from treadle.frontends.inductor_dump.model import MemoryDep
from treadle.frontends.inductor_dump.parse_values import Values
from treadle.frontends.inductor_dump.rederive_same import is_same_access

CORPUS = Path(__file__).parents[2] / "corpus" / "inductor"
SPLIT_AGAIN = ("loops_split_again.0.pre.txt", "loops_split_again.0.post.txt",
               "gpu_loops_split_again.txt")  # fmt: skip
WHOLE = "MemoryDep('x', ModularIndexing(27*c0 + c1, 1, 6), {c0: 2, c1: 27})"


def dep(text: str) -> MemoryDep:
    found = Values().dep(text)
    assert isinstance(found, MemoryDep)
    return found


@pytest.mark.parametrize(
    "other",
    [
        "MemoryDep('x', ModularIndexing(27*c0 + 9*c1 + c2, 1, 6), {c0: 2, c1: 3, c2: 9})",
        "MemoryDep('x', ModularIndexing(3*c0 + 3*c1 + c2, 1, 6), {c0: 2, c1: 3, c2: 9})",
        "MemoryDep('x', ModularIndexing(c0, 1, 6), {c0: 54})",
    ],
)
def test_other_loops_over_the_same_elements_are_the_same(other: str) -> None:
    assert is_same_access(dep(WHOLE), dep(other))
    assert is_same_access(dep(other), dep(WHOLE))


@pytest.mark.parametrize(
    "other",
    [
        "MemoryDep('y', ModularIndexing(c0, 1, 6), {c0: 54})",
        "MemoryDep('x', ModularIndexing(c0, 1, 6), {c0: 54}, atomic_add)",
        "MemoryDep('x', ModularIndexing(c0, 1, 6) + 1, {c0: 54})",
        "MemoryDep('x', ModularIndexing(c0, 1, 6), {c0: 60})",
        "MemoryDep('x', ModularIndexing(c0, 1, 7), {c0: 54})",
        "MemoryDep('x', ModularIndexing(c0 + 27*c1, 1, 6), {c0: 27, c1: 2})",
        "MemoryDep('x', ModularIndexing(c5, 1, 6), {c0: 54})",
        "MemoryDep('x', ModularIndexing(c0, 1, 6) + s0, {c0: 54})",
        "MemoryDep('x', ModularIndexing(c0, 1, c0), {c0: 54})",
    ],
)
def test_what_differs_anywhere_is_not_the_same(other: str) -> None:
    assert not is_same_access(dep(WHOLE), dep(other))


def test_large_loops_and_run_time_sizes_are_compared_at_some_points() -> None:
    one = "MemoryDep('x', ModularIndexing(c0, 1, 640) + 640*s0, {c0: 1048576})"
    cut = "MemoryDep('x', ModularIndexing(1024*c0 + c1, 1, 640) + 640*s0, {c0: 1024, c1: 1024})"
    assert is_same_access(dep(one), dep(cut))
    assert not is_same_access(dep(one), dep(cut.replace("1, 640", "1, 641")))
    sized = "MemoryDep('x', ModularIndexing(c0, 1, 6), {c0: 4*s0})"
    split = "MemoryDep('x', ModularIndexing(4*c0 + c1, 1, 6), {c0: s0, c1: 4})"
    assert is_same_access(dep(sized), dep(split))
    assert not is_same_access(dep(sized), dep(split.replace("4*c0", "5*c0")))


def test_loops_that_an_index_leaves_out_do_not_count() -> None:
    one = "MemoryDep('x', c0//4, {c0: 32})"
    assert is_same_access(dep(one), dep("MemoryDep('x', c0, {c0: 8})"))


def test_sums_have_one_form_unless_loops_were_merged_later() -> None:
    apart = dep("MemoryDep('x', 4*d0 + d1, {d0: 6, d1: 4})")
    whole = dep("MemoryDep('x', c0, {c0: 24})")
    assert not is_same_access(apart, whole)
    assert is_same_access(apart, whole, sums_too=True)


@pytest.mark.parametrize("name", SPLIT_AGAIN)
def test_a_dump_with_loops_split_again_is_derived_again(name: str) -> None:
    dump = parse_dump((CORPUS / name).read_text(), name)
    found = rederive(dump)
    assert found.differences == []
    assert found.checked["loop_nodes"] == found.total["loop_nodes"]
    assert not [f for f in dump.findings if not f.is_note]


@pytest.mark.parametrize("name", SPLIT_AGAIN)
def test_a_wrong_index_in_such_a_body_is_still_found(name: str) -> None:
    text = (CORPUS / name).read_text()
    lines = [k for k, line in enumerate(text.split("\n"))
             if re.match(r"    index\d+ = .*ModularIndexing", line)]  # fmt: skip
    assert lines
    for at in lines:
        changed = text.split("\n")
        changed[at] += " + 1"
        codes = {d.code for d in rederive(parse_dump("\n".join(changed))).differences}
        assert codes & {"IND010", "IND011"}


def test_a_choice_in_an_index_is_derived_again() -> None:
    text = (CORPUS / "reflect_dynamic.0.pre.txt").read_text()
    assert "Where(" in text
    dump = parse_dump(text)
    found = rederive(dump)
    assert found.differences == []
    assert {f.code for f in dump.findings} <= {"IND007"}
    assert found.checked["loop_nodes"] == found.total["loop_nodes"]
    codes = {d.code for d in rederive(parse_dump(text.replace("< 0, ", "< 1, ", 1))).differences}
    assert codes


def test_users_that_were_removed_as_dead_are_no_difference() -> None:
    for name in ("removed_users.0.pre.txt", "removed_users.0.post.txt"):
        text = (CORPUS / name).read_text()
        dump = parse_dump(text, name)
        assert "SchedulerNode(name='op5')" in text
        assert not [f for f in dump.findings if not f.is_note]
        assert rederive(dump).differences == []
    # Without the alias that does not name it, the same user is a hole in the dump.
    lone = text.replace("buf0.aliases = ['buf2']\n", "buf0.aliases = ['buf77']\n")
    assert any("op5, which is not in this dump" in f.message for f in parse_dump(lone).findings)
