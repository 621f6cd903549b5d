"""Damaged XLA dumps: an InputError or a faithful copy, no other exception, no long wait."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.core.errors import TreadleError
from treadle.frontends.xla_dump import (
    XlaDump,
    kind_of_text,
    parse_dump,
    print_file,
    rederive,
    xla_plan,
)
from treadle.frontends.xla_dump.import_program import import_program
from treadle.frontends.xla_dump.replan import replan_problem, xla_answer
from treadle.frontends.xla_dump.survey import survey

FIXTURES = Path(__file__).parents[1] / "corpus" / "xla"
FILES = (
    "small.2024-09-buffer-assignment.txt", "small.2024-10-buffer-assignment.txt",
    "loop.2024-11-buffer-assignment.txt", "small.2025-07-buffer-assignment.txt",
    "loop.2026-06-buffer-assignment-values.txt", "loop.2026-06-live-range.txt",
    "small.2026-08-buffer-assignment.txt", "small.2024-11-memory-usage-report.txt",
    "small.2026-04-memory-usage-report.txt", "small.2026-04.txt", "loop.2024-11.txt",
)  # fmt: skip
SEEDS = 120
SECONDS = 3.0  # for a few kilobytes; normally it takes milliseconds
HOSTILE = "()[]{}',.=: _-*/\\\"\n\r\t\x00é0a<>@%|├"

Mutation = Callable[[random.Random, str], str]


def cut(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text))]


def cut_front(rng: random.Random, text: str) -> str:
    return text[rng.randrange(len(text)) :]


def delete_line(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def swap_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def repeat_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    start = rng.randrange(len(lines))
    part = lines[start : start + rng.randrange(1, 6)]
    return "\n".join(lines[:start] + part * rng.randrange(2, 5) + lines[start:])


def rename(rng: random.Random, text: str) -> str:
    old = rng.choice(["mul", "pair", "state", "loop", "size", "value", "f32", "out", "{0}", " @0"])
    return text.replace(old, rng.choice(["sum", "x y", "", "a" * 300, "{1}", "(phi)", "9"]))


def change_numbers(rng: random.Random, text: str) -> str:
    digits = [k for k, c in enumerate(text) if c.isdecimal()]
    characters = list(text)
    for at in rng.sample(digits, min(len(digits), rng.randrange(1, 8))):
        characters[at] = rng.choice(["0", "7", "99999999", ""])
    return "".join(characters)


def replace_characters(rng: random.Random, text: str) -> str:
    characters = list(text)
    for _ in range(rng.randrange(1, 6)):
        characters[rng.randrange(len(characters))] = rng.choice(HOSTILE)
    return "".join(characters)


def insert_text(rng: random.Random, text: str) -> str:
    start = rng.randrange(len(text))
    pieces = [
        "(" * 500,
        "  later: 1\n",
        "\n\n",
        " value: <1 a @0>\n",
        "9" * 5000,
        ", new-word",
        "{",
    ]
    return text[:start] + rng.choice(pieces) + text[start:]


MUTATIONS: tuple[Mutation, ...] = (
    cut, cut_front, delete_line, swap_lines, repeat_lines, rename, change_numbers,
    replace_characters, insert_text,
)  # fmt: skip


def _is_reproduced(text: str, what: str) -> bool:
    """Whether the text could be read; then it must have been printed back."""
    try:
        dump = parse_dump(text, "f")
    except TreadleError as error:
        rendered = error.render()
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {error}")
    else:
        _use(dump, text, what)
        return True
    assert "\n" not in rendered, what
    return False


def _use(dump: XlaDump, text: str, what: str) -> None:
    """All that can be done with a dump, each by itself: fine or one clear error."""
    for file in dump.files:
        assert print_file(dump, file) == text, what
    for use in (rederive, survey, xla_plan, _answer, import_program):
        try:
            use(dump)
        except TreadleError:
            continue
        except Exception as error:
            pytest.fail(f"{what}: {use.__name__}: {type(error).__name__}: {error}")


def _answer(dump: XlaDump) -> object:
    return xla_answer(dump, replan_problem(dump))


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
        "allocation 0: size 1" + ", parameter 1, shape |" * 50_000 + ":",
        "allocation 0: size 1" + ", word" * 100_000 + ":",
        " value: <1 a @0> (size=1,offset=0): " + "(" * 200_000,
        " value: <1 a @0> (size=1,offset=0): (" + "f32[]{0}, /* " * 50_000,
        " from instruction: " + "<1 a @0>" * 50_000,
        " from instruction: %a = f32[] add(" + "%b, " * 100_000,
        "    " + "  │   " * 80_000 + "├── x (1.0%",
        "<" * 300_000,
        " " * 500_000,
        "%c (" + ") -> " * 100_000 + " {",
        "9" * 500_000,
    ],
    ids=range(11),
)
def test_endless_lines_do_not_hang(line: str) -> None:
    text = (FIXTURES / "small.2025-07-buffer-assignment.txt").read_text("utf-8")
    hlo = (FIXTURES / "small.2026-04.txt").read_text("utf-8")
    middle = text.index("\n", len(text) // 2) + 1
    for before, after in (
        ("BufferAssignment:\n", "\n"),
        (text, "\n"),
        (text[:middle], "\n" + text[middle:]),
        (hlo, "\n"),
        (hlo[: hlo.index("  %mul")], "\n" + hlo[hlo.index("  %mul") :]),
    ):
        start = time.process_time()
        kind_of_text(before + line + after)
        _is_reproduced(before + line + after, line[:40])
        assert time.process_time() - start < 10
