"""The facts known about the seeds come out of the library."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from treadle.analysis.accounting import PEER, figures
from treadle.analysis.liveness import Liveness
from treadle.frontends.inductor_dump import import_program, read_dump, unpacked
from treadle.frontends.inductor_dump.import_program import Imported
from treadle.frontends.inductor_dump.survey import SectionSurvey, survey
from treadle.ir.interp import run
from treadle.ir.interp.compare import differing_results, random_inputs
from treadle.ir.program import Collective, Loop, Program, Wait
from treadle.testing.stand_ins import stand_ins

SHARED = Path(__file__).parents[2].parent / "shared"
GATHERED = sorted(SHARED.glob("dumps/inductor/*/*.txt"))


def seed(number: str) -> str:
    found = sorted(SHARED.glob(f"seeds/{number}_*.txt"))
    if not found:
        pytest.skip(f"seed {number} is not beside the repository")
    return str(found[0])


@cache
def imported(path: str) -> Imported:
    return import_program(read_dump(path))


@cache
def surveyed(path: str) -> SectionSurvey:
    return survey(read_dump(path))


def program(number: str) -> Program:
    return imported(seed(number)).program


# ------------------------------------------------------------------------------------- 000


def test_seed_000_counts() -> None:
    s = surveyed(seed("000"))
    assert (s.nodes, s.ops) == (44, 47)
    assert s.kinds["loop"] == 9
    assert s.kinds["allocation"] == 6
    assert s.groups == {"2 members": 3}
    assert s.buffers == {"NoneLayout": 33, "FixedLayout": 26, "MultiOutputLayout": 3,
                         "MutationLayoutSHOULDREMOVE": 3}  # fmt: skip
    assert s.mutations == 21
    assert s.mutated_more_than_once == ["buf2", "buf16", "buf30"]
    assert s.aliases == 9
    assert s.ordering_edges == 3
    assert s.outputs == 3


def test_seed_000_figures() -> None:
    s = surveyed(seed("000"))
    assert (s.peak_bytes, s.peak_at, s.peak_lower_bound) == (2080, "op25", 1024)
    assert (s.bytes_moved, s.estimated_bytes) == (20_018, 29_970)
    assert s.bytes_by_kind["_CollectiveKernel"] == 6_912


def test_seed_000_a_collective_reads_until_its_wait_so_more_is_live_than_the_peer_says() -> None:
    held = Liveness(program("000"), replace(PEER.policy, hold_until_wait=True))
    assert held.peak().bytes == 2080 + 256


def test_seed_000_has_a_dead_collective_chain() -> None:
    (line,) = [x for x in surveyed(seed("000")).oddities if "dead" in x]
    assert line.startswith("dead collective chain: ")
    for name in ("op20", "op21", "op22", "op23", "op24", "op25", "op26"):
        assert name in line


def test_seed_000_communication() -> None:
    kinds = Counter(type(op) for op in program("000").leaves)
    assert (kinds[Collective], kinds[Wait]) == (6, 6)
    assert any("6 waits follow" in x for x in surveyed(seed("000")).oddities)


def test_seed_000_runs_and_ungrouping_changes_nothing() -> None:
    p = program("000")
    externs = stand_ins(p)
    outputs = run(p, random_inputs(p), externs=externs).outputs
    assert [o.shape for o in outputs] == [(8, 16)] * 3
    assert all(np.isfinite(o.astype(np.float32)).all() for o in outputs)
    assert differing_results(p, unpacked(p), externs=externs) == []


# ------------------------------------------------------------------------------------- 001


def test_seed_001_counts() -> None:
    s = surveyed(seed("001"))
    assert (s.nodes, s.ops) == (959, 1104)
    assert s.kinds == {"loop": 365, "allocation": 265, "UserDefinedTritonKernel": 262,
                       "FallbackKernel": 105, "MultiOutput": 105, "ExternKernelOut": 2}  # fmt: skip
    assert s.groups == {"2 members": 69, "3 members": 5, "4 members": 18, "5 members": 3}
    assert s.buffers == {"FixedLayout": 737, "NoneLayout": 315, "MultiOutputLayout": 105}
    assert (s.mutations, s.aliases, s.ordering_edges) == (315, 0, 137)
    assert (s.indirect_nodes, s.indirect_accesses) == (54, 110)
    assert (s.inputs, s.inputs_of_unknown_size, s.outputs) == (580, 530, 160)
    assert (s.work["fills"], s.work["copies"], s.work["casts"]) == (12, 151, 54)


def test_seed_001_peaks() -> None:
    s = surveyed(seed("001"))
    assert (s.peak_bytes, s.peak_at) == (26_812_233_984, "op1012_op1015_op1030_op1033")
    assert s.unfused_peak_bytes == 21_057_714_432
    assert s.peak_lower_bound == 21_374_173_184
    p = program("001")
    assert figures(unpacked(p), PEER).peak_lower_bound == 16_441_671_680
    longer = Liveness(p, replace(PEER.policy, orderings_extend_life=True)).peak()
    assert longer.bytes == 34_622_028_032


def test_seed_001_traffic() -> None:
    s = surveyed(seed("001"))
    assert s.estimated_bytes == 860_256_838_098
    assert s.counted_as_inductor["bytes_moved"] == s.estimated_bytes
    assert s.accesses_of_unknown_size == 531
    # The peer caps buffers at 10^9 elements and counts fresh memory as read.
    assert s.bytes_moved == 835_037_920_722


def test_seed_001_stores_the_same_again_and_again() -> None:
    s = surveyed(seed("001"))
    assert (s.duplicate_stores, s.duplicate_store_bytes) == (50, 43_878_711_296)


def test_seed_001_is_imported_and_surveyed_in_a_few_seconds() -> None:
    start = time.process_time()
    survey(read_dump(seed("001")))
    assert time.process_time() - start < 10


def test_seed_001_bodies_are_all_executable() -> None:
    found = imported(seed("001"))
    assert sum(isinstance(op, Loop) for op in found.program.leaves) == 365
    assert {a.code for a in found.assumptions} == {"IND021"}


# ------------------------------------------------------------------------------------- 003


def test_seed_003_figures() -> None:
    s = surveyed(seed("003"))
    assert s.bytes_by_kind["loop"] == 2_233_088
    assert (s.peak_bytes, s.peak_at) == (1_114_112, "op1")
    assert (s.mutations, s.groups) == (0, {})


def test_seed_003_computes_what_plain_numpy_computes() -> None:
    p = program("003")
    inputs = random_inputs(p)
    a0, a1, a2, a3, a4 = (inputs[f"arg{k}_1"].astype(np.float64) for k in range(5))
    bf16 = inputs["arg0_1"].dtype

    def rounded(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return x.astype(np.float32).astype(bf16).astype(np.float64)

    buf0 = rounded(a2 * a1[:, None])
    buf1 = rounded(a0 @ buf0)
    buf2 = rounded(np.exp(-a3[:, None] * a4) * buf1)
    buf3 = rounded(a0.T @ buf2)
    found = run(p, inputs).outputs
    for mine, wanted in zip(found, (buf2, buf3), strict=True):
        # One rounding step of bf16 apart at most, where a sum lies between two values.
        assert np.allclose(mine.astype(np.float64), wanted, rtol=2**-7, atol=1e-30)


# -------------------------------------------------------------------------------- gathered


@pytest.mark.skipif(not GATHERED, reason="the gathered dumps are not beside the repository")
@pytest.mark.parametrize("path", GATHERED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_gathered_dump_becomes_a_program_of_loops(path: Path) -> None:
    found = imported(str(path))
    assert not [a for a in found.assumptions if a.code in ("IND020", "IND023")]
    assert figures(found.program, PEER).kernels > 0
