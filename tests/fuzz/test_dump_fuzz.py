"""Damaged dumps: an InputError or a faithful copy, never another exception, never a long wait."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.core.errors import InputError
from treadle.frontends.inductor_dump import looks_like_dump, parse_dump, print_dump, rederive

FIXTURES = Path(__file__).parents[1] / "corpus" / "inductor"
FILES = ("softmax.0.post.txt", "pad_masked.0.pre.txt", "mutations.0.post.txt", "foreach.log.txt",
         "indirect_dynamic.0.pre.txt", "several_outputs.0.pre.txt")  # fmt: skip
SEEDS = 150
SECONDS = 3.0  # for a few kilobytes; normally it takes milliseconds
HOSTILE = "()[]{}',.=: _-*/\\\"\n\r\t\x00é0a<"

Mutation = Callable[[random.Random, str], str]


def cut(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text))]


def cut_front(rng: random.Random, text: str) -> str:
    return text[rng.randrange(len(text)) :]


def delete_line(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def delete_span(rng: random.Random, text: str) -> str:
    start = rng.randrange(len(text))
    return text[:start] + text[start + rng.randrange(1, 200) :]


def swap_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def duplicate_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    start = rng.randrange(len(lines))
    part = lines[start : start + rng.randrange(1, 6)]
    return "\n".join(lines[:start] + part * rng.randrange(2, 5) + lines[start:])


def rename(rng: random.Random, text: str) -> str:
    old = rng.choice(
        ["op0", "op1", "buf0", "buf1", "load", "index0", "p0", "SchedulerNode", "self"]
    )
    return text.replace(old, rng.choice(["op9", "buf77", "x y", "", "a" * 300, "None"]))


def replace_characters(rng: random.Random, text: str) -> str:
    characters = list(text)
    for _ in range(rng.randrange(1, 6)):
        characters[rng.randrange(len(characters))] = rng.choice(HOSTILE)
    return "".join(characters)


def insert_text(rng: random.Random, text: str) -> str:
    start = rng.randrange(len(text))
    piece = rng.choice(["(" * 500, "op0.stream = 1\n", "\n\n\n", "    x = 1\n", "9" * 5000, "'"])
    return text[:start] + piece + text[start:]


MUTATIONS: tuple[Mutation, ...] = (
    cut, cut_front, delete_line, delete_span, swap_lines, duplicate_lines, rename,
    replace_characters, insert_text,
)  # fmt: skip


def _is_reproduced(text: str, what: str) -> bool:
    """Whether the text could be read; then it must have been printed back."""
    try:
        looks_like_dump(text)
        dump = parse_dump(text, "f")
        rederive(dump)
    except InputError as error:
        rendered = error.render()
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {error}")
    else:
        assert print_dump(dump) == text, what
        return True
    assert "\n" not in rendered, what
    return False


@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_or_reproduced(name: str) -> None:
    original = (FIXTURES / name).read_bytes().decode("utf-8")
    survived = 0
    for seed in range(SEEDS):
        rng = random.Random(f"{name} {seed}")
        text = original
        for _ in range(rng.randrange(1, 4)):
            text = rng.choice(MUTATIONS)(rng, text) or "x"
        what = f"{name}, seed {seed}"
        start = time.process_time()
        survived += _is_reproduced(text, what)
        assert time.process_time() - start < SECONDS, what
    assert 0 < survived < SEEDS


@pytest.mark.parametrize(
    "line",
    [
        "op0.writes = [" + "MemoryDep('b', c0, {c0: 1}), " * 30_000,
        "op0.writes = [" + ", ".join(["StarDep(name='b', mode=None)"] * 30_000) + "]",
        "x] " * 200_000 + "AFTER FUSION",
        "BEFORE FUSION " * 50_000,
        "    index0 = " + "Min(" * 30_000,
        "    index0 = " + " + ".join(["p0*p1"] * 50_000),
        "op0.sizes = (" + "[" * 100_000,
        "'" * 300_001,
        " " * 500_000,
        "_" * 500_000,
    ],
    ids=range(10),
)
def test_endless_lines_do_not_hang(line: str) -> None:
    text = (FIXTURES / "softmax.0.pre.txt").read_text("utf-8")
    for before, after in (("", ""), (text, "\n"), (text[: len(text) // 2] + "\n", text)):
        start = time.process_time()
        looks_like_dump(before + line + after)
        with pytest.raises(InputError):
            parse_dump(before + line + after)
        assert time.process_time() - start < 10
