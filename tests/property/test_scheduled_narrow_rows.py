"""Rows of f16 that are floats while loops work on them stay within the bound of their program."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_c_programs import EXAMPLES, agree_in_shared_memory
from test_scheduled_c import scheduled, stay_within

from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.interp.compare import random_inputs
from treadle.ir.program import Nest, Program
from treadle.ir.types import Buffer


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


SIZES = (1, 5, 31, 32, 33, 47, 64, 100, 768, 1021, 1024, 1025, 2049)


class Writer:
    """Random loops over rows of f16, each a program of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.b = ProgramBuilder("narrow")
        self.rows, self.columns = self.rng.choice((1, 2, 3, 33)), self.rng.choice(SIZES)

    def program(self) -> Program:
        rng, b = self.rng, self.b
        sizes = [self.rows, self.columns]
        donated = rng.random() < 0.5
        x = b.input("x", self.type(), sizes, donated=donated)
        w = b.input("w", self.type(), sizes[1:])
        way = rng.choice((self.elements, self.over_rows, self.over_rows, self.over_columns))
        way(x, w)
        return b.build()

    def type(self) -> str:
        return self.rng.choice(("f16", "f16", "f16", "f32", "bf16"))

    def value(self, k: BodyBuilder, x: Buffer, w: Buffer, i: object, j: object) -> Value:
        """Something of both, rounded on the way or not."""
        a, c = k.load(x, i, j), k.load(w, j)
        a = a.to("f32") if self.rng.random() < 0.7 else a
        made = {0: lambda: a * c, 1: lambda: a + c.to("f32"), 2: lambda: abs(a) - c}
        found = made[self.rng.randrange(3)]()
        return found.to("f16").to("f32") if self.rng.random() < 0.3 else found

    def elements(self, x: Buffer, w: Buffer) -> None:
        with self.b.loop("elements", [self.rows, self.columns]) as k:
            i, j = k.vars
            value = self.value(k, x, w, i, j)
            k.store(self.output([self.rows, self.columns]), (i, j), value)
            if self.rng.random() < 0.4:
                k.store(self.output([self.rows, self.columns]), (i, j), value.to("f16"))

    def over_rows(self, x: Buffer, w: Buffer) -> None:
        with self.b.loop("rows", [self.rows], reduce=[self.columns]) as k:
            i, j = k.vars
            value = self.value(k, x, w, i, j)
            total = k.sum(value.to("f32")) if self.rng.random() < 0.6 else k.max(value)
            if self.rng.random() < 0.5:
                again = k.sum((value - total).to("f32") * 0.25)
                k.store(self.output([self.rows]), (i,), again)
                total = total + again
            k.store(self.output([self.rows, self.columns]), (i, j), value - total)

    def over_columns(self, x: Buffer, w: Buffer) -> None:
        with self.b.loop("columns", [self.columns], reduce=[self.rows]) as k:
            j, i = k.vars
            total = k.sum(self.value(k, x, w, i, j).to("f32"))
            k.store(self.output([self.columns]), (j,), total)

    def output(self, sizes: list[int]) -> Buffer:
        return self.b.output(f"y{self.rng.random()}".replace(".", "_"), self.type(), sizes)


@settings(max_examples=2 * EXAMPLES)
@given(st.integers(0, 2**20))
def test_rows_of_f16_stay_within(seed: int) -> None:
    program = Writer(seed).program()
    stay_within(program, {}, random_inputs(program))


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**20))
def test_rows_of_f16_agree_in_shared_memory(seed: int) -> None:
    agree_in_shared_memory(scheduled(Writer(seed).program(), fuses=True))


def test_these_programs_do_go_through_tiles() -> None:
    ways = {"keep": 0, "stage": 0}
    for seed in range(60):
        for leaf in scheduled(Writer(seed).program(), fuses=False).leaves:
            steps = " ".join(map(str, leaf.schedule)) if isinstance(leaf, Nest) else ""
            for word in ways:
                ways[word] += word in steps
    assert ways["stage"] > 30
    assert ways["keep"] > 10
