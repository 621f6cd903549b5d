"""Kernels of attention, word for word; `--update-golden` writes what is written today.

tests/golden/flex/NAME.py.txt           the text of a kernel
tests/golden/flex/should_not_NAME.txt   why there is none
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "codegen"))

from flex_specs import BLOCKS, CAUSAL, PLAIN, SOFTCAP, alibi, pair, points

from treadle.codegen.triton.flex.backward import write_keys
from treadle.codegen.triton.flex.forward import write_forward
from treadle.codegen.triton.flex.points import why_no_points
from treadle.codegen.triton.flex.spec import SCORE, Tile
from treadle.codegen.triton.flex.tiles import why_no_tile
from treadle.ir.types import DType
from treadle.testing.golden import check_text

FOLDER = Path(__file__).with_name("flex")


def forward() -> str:
    spec = replace(CAUSAL, score=alibi())
    return write_forward(spec, Tile(128, 64, 4, 3), True, False).text


def forward_of_odd_lengths() -> str:
    spec = replace(PLAIN, qk_dim=24, v_dim=40, dtype=DType.F32, group=4)
    return write_forward(spec, Tile(32, 32, 4, 2), False, True).text


def keys() -> str:
    spec = replace(SOFTCAP, group=2, lists=replace(BLOCKS, per_batch=True, per_head=True))
    return write_keys(spec, Tile(64, 128, 8, 3), True).text


TEXTS: dict[str, Callable[[], str]] = {
    "forward_causal_alibi": forward,
    "forward_of_odd_lengths": forward_of_odd_lengths,
    "keys_of_groups": keys,
}
REASONS: dict[str, Callable[[], str | None]] = {
    "should_not_hold_heads_of_272": lambda: why_no_tile(replace(PLAIN, v_dim=272)),
    "should_not_cut_blocks_of_24": lambda: why_no_tile(
        replace(CAUSAL, lists=replace(BLOCKS, block_kv=24))
    ),
    "should_not_draw_numbers_inside": lambda: why_no_points(
        points(
            DType.F32,
            lambda k: (
                k.random("rand", k.index(k.vars[0]), k.index(k.vars[2]))
                + k.load(pair(SCORE), *k.vars)
            ),
        )
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_kernel_is_written_word_for_word(name: str, update_golden: bool) -> None:
    check_text(FOLDER / f"{name}.py.txt", TEXTS[name](), update_golden)


@pytest.mark.parametrize("name", REASONS)
def test_what_has_no_kernel_has_a_reason(name: str, update_golden: bool) -> None:
    reason = REASONS[name]()
    assert reason is not None
    check_text(FOLDER / f"{name}.txt", reason + "\n", update_golden)
