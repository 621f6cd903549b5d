"""Philox against the published known answers, and the mappings to distributions."""

import numpy as np
import pytest

from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import run
from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.random import philox, uniform, words

ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
COUNT = 4096


def draw(kind: str, seed: int, element: str = "f32", limits: tuple[int, int] = (0, 1)) -> Array:
    b = ProgramBuilder("random")
    s = b.input("seed", "i64", [1])
    y = b.output("y", element, [COUNT])
    with b.loop("it", [COUNT]) as k:
        from_seed, offset = k.load(s, 0), k.index(k.vars[0])
        if kind == "randint":
            low, high = (k.constant(v, "i64") for v in limits)
            value = k.randint(from_seed, offset, low, high, element)
        else:
            value = k.random(kind, from_seed, offset, element)
        k.store(y, k.vars, value)
    return run(b.build(), {"seed": np.array([seed])}).outputs[0]


@pytest.mark.parametrize("counter, key, answer", KNOWN_ANSWERS)
def test_the_published_answers(
    counter: tuple[int, ...], key: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    found = philox([np.array(c) for c in counter], [np.array(k) for k in key])
    assert tuple(int(w) for w in found) == answer


def test_seed_and_offset_are_split_into_halves() -> None:
    seed, offset = np.array([-2]), np.array([(7 << 32) + 5])
    counter = [np.array([c]) for c in (5, 7, 0, 0)]
    expected = philox(counter, [np.array([ONES - 1]), np.array([ONES])])
    assert [int(w[0]) for w in words(seed, offset)] == [int(w[0]) for w in expected]


@pytest.mark.parametrize(
    "word, wanted",
    [(0, 0.0), (ONES, 0.0), (1 << 30, 0.5), (0x7FFFFFFF, 1 - 2.0**-24), (1 << 31, 1 - 2.0**-24)],
)
def test_a_word_becomes_a_number_below_one(word: int, wanted: float) -> None:
    found = uniform(np.array([word], np.uint64))
    assert found.dtype == np.float32
    assert abs(float(found[0]) - wanted) < 2.0**-23
    assert found[0] < 1


def test_rand_is_uniform_and_depends_on_the_seed() -> None:
    x, other = draw("rand", 1), draw("rand", 2)
    assert ((x >= 0) & (x < 1)).all()
    assert abs(x.mean() - 0.5) < 0.02
    assert abs(x.var() - 1 / 12) < 0.01
    assert (x == draw("rand", 1)).all()
    assert (x != other).mean() > 0.99


def test_randn_is_normal() -> None:
    x = draw("randn", 3)
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 0.06
    assert abs(x.var() - 1) < 0.06
    first, second, _, _ = words(np.array([3]), np.array([0]))
    u, v = (float(uniform(w)[0]) for w in (first, second))
    assert x[0] == np.float32(np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v))


def test_randint_takes_both_words_modulo_the_range() -> None:
    x = draw("randint", 5, "i64", (-3, 4))
    assert set(x.tolist()) == set(range(-3, 4))
    first, second, _, _ = words(np.array([5]), np.array([9]))
    assert x[9] == -3 + (int(first[0]) + (int(second[0]) << 32)) % 7
    assert (draw("randint", 5, "i32", (8, 8)) == 8).all()


def test_other_types_are_converted_from_f32() -> None:
    assert (draw("rand", 1, "f64") == draw("rand", 1).astype(np.float64)).all()
    assert draw("randn", 1, "f16").dtype == np.float16
