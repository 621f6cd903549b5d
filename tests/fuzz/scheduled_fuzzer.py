"""Random programs on scheduled loops: what the C code computes stays within the derived bound.

    PYTHONPATH=src python tests/fuzz/scheduled_fuzzer.py --cases 1000000 --seed 0

The programs of tests/property/test_scheduled_c.py with torch's numerics, compared with the
interpreter. The C compiler would take most of the time, so the kernels of a batch of programs are
one translation unit: names are made different, and the helpers stand there once. Each batch has a
seed and a family of its own, which are printed with a failure: with them and --cases 1 that batch
is run again.
"""

from __future__ import annotations

import _ctypes
import argparse
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import UnsatisfiedAssumption

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))

from focused_programs import crowds, relays
from product_programs import products
from random_bodies import bodies
from small_programs import EXTERNS, inputs_for, size_choices, small_programs
from test_c_programs import reads_what_it_accumulates, shows_bits_of_nan
from test_scheduled_c import SORTED_MOVES, TORCH, asks_for_a_position, scheduled
from wide_programs import wide_programs

from treadle.codegen.c.fast_ops import F64, FAST, LIBRARY, LIBRARY_F64, VECTOR
from treadle.codegen.c.unit import ENTRY, FAST_FLAGS, prelude
from treadle.core.options import Options
from treadle.core.toolchain import LoadedLibrary, load_shared
from treadle.core.verdict import YES
from treadle.index import Symbol
from treadle.ir.interp.compare import random_inputs
from treadle.ir.program import Call, Nop, Program
from treadle.ir.text import show_program
from treadle.runtime import compile_program
from treadle.testing.error_bound import derive_bounds, outside
from treadle.testing.strategies import programs

PLAIN = {"special", "sort", "turn", "product", "threads"}
FULL = {
    *PLAIN,
    "fast",
    "halves",
    "whole",
    *[f"{VECTOR}{f}" for f in (*FAST, *LIBRARY) if f != "rsqrt"],
    *[f"{VECTOR}{F64}{f}" for f in LIBRARY_F64],
}
BATCH = 50

Sizes = dict[Symbol, int]


def _counts(*counts: int) -> Callable[[Program], Iterator[Sizes]]:
    def choices(program: Program) -> Iterator[Sizes]:
        for count in counts if program.sizes else (0,):
            yield dict.fromkeys(program.sizes, count)

    return choices


def _random(program: Program, sizes: Sizes) -> dict[str, Any]:
    return random_inputs(program, sizes={s.name: n for s, n in sizes.items()})


@dataclass(frozen=True)
class Family:
    """A kind of programs: where they come from, what sizes and inputs they run on."""

    strategy: Any
    sizes: Callable[[Program], Any]
    inputs: Callable[[Program, Sizes], dict[str, Any]]
    fuses: bool = False


FAMILIES = {
    "any": Family(programs(), _counts(1, 4), _random),
    "small": Family(small_programs(moves=SORTED_MOVES), size_choices, inputs_for, fuses=True),
    "bodies": Family(bodies(), _counts(3, 0), _random),
    "relays": Family(relays(), _counts(0), inputs_for, fuses=True),
    "crowds": Family(crowds(), _counts(0), inputs_for, fuses=True),
    "wide": Family(wide_programs(), _counts(48, 5), _random),
    "products": Family(products(), _counts(0), _random, fuses=True),
}


class Shared:
    """The translation unit of a batch: units are added, then it is compiled and loaded as one."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.texts: dict[tuple[str, ...], list[str]] = {}
        self.libraries: dict[tuple[str, ...], Any] = {}

    def load(self, source: str, *, flags: tuple[str, ...], options: Options) -> LoadedLibrary:
        """What stands for a library until all units are known."""
        own = self.texts.setdefault(flags, [])
        number = len(own)
        begin = re.search(r"^static int k|^int treadle_run\(", source, re.MULTILINE)
        assert begin is not None, "a unit has an entry"
        text = source[begin.start() :]
        for name in {*re.findall(r"^static \w+ (\w+)\(", text, re.MULTILINE), ENTRY}:
            text = re.sub(rf"\b{name}\b", f"{name}_of_{number}", text)
        own.append(text)
        return LoadedLibrary(_Later(self, flags, number), YES)

    def compile(self) -> None:
        """Compile and load what was added."""
        for flags, texts in self.texts.items():
            helpers = FULL if set(FAST_FLAGS) <= set(flags) else PLAIN
            source = "\n".join([prelude(frozenset(helpers)), *texts])
            loaded = load_shared(source, flags=flags, options=self.options)
            assert loaded.verdict, loaded.verdict
            self.libraries[flags] = loaded.library

    def close(self) -> None:
        """Let the libraries go: a million programs would not fit."""
        for library in self.libraries.values():
            _ctypes.dlclose(library._handle)


class _Later:
    """A library whose entry is known once its batch is compiled."""

    def __init__(self, shared: Shared, flags: tuple[str, ...], number: int) -> None:
        self._shared, self._flags, self._number = shared, flags, number
        self.restype: Any = None
        self.argtypes: Any = None

    def __getitem__(self, name: str) -> Any:
        if name != ENTRY:
            raise AttributeError(name)  # one thread
        return self

    def __call__(self, *args: Any) -> int:
        entry = self._shared.libraries[self._flags][f"{ENTRY}_of_{self._number}"]
        entry.restype, entry.argtypes = self.restype, self.argtypes
        found: int = entry(*args)
        return found


def drawn(family: Family, count: int, number: int) -> list[Program]:
    """Programs of a family, by a seed."""
    found: list[Program] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(family.strategy)
    def take(program: Program) -> None:
        found.append(program)

    take()
    return found


def is_fitting(program: Program) -> bool:
    """Whether the bound says something of a program."""
    return not (
        reads_what_it_accumulates(program)
        or asks_for_a_position(program)
        or shows_rubbish_to_others(program)
    )


def shows_rubbish_to_others(program: Program) -> bool:
    """Whether calls may see memory that nothing defines: fresh, or between elements of a buffer."""
    if not any(isinstance(op, Call) for op in program.leaves):
        return False
    if any(isinstance(op, Nop) for op in program.leaves):
        return True
    roots = {program.by_name[program.storage_of(b.name)] for b in program.buffers}
    return any(root.storage_numel is not root.numel for root in roots)


def run_batch(name: str, count: int, number: int, options: Options) -> tuple[int, list[str]]:
    """How many programs of a batch were compared, and what was found."""
    family, shared = FAMILIES[name], Shared(options)
    compiled, failures = [], []
    with patch("treadle.runtime.kernels.load_shared", shared.load):
        for program in filter(is_fitting, drawn(family, count, number)):
            try:
                built = scheduled(program, family.fuses)
                compiled.append((program, compile_program(built, externs=EXTERNS, optimise=2)))
            except Exception:
                failures.append(f"{traceback.format_exc()}\n{show_program(program)}")
    shared.compile()
    for program, one in compiled:
        try:
            failures += _compared(family, program, one)
        except UnsatisfiedAssumption:
            continue
        except Exception:
            failures.append(f"{traceback.format_exc()}\n{show_program(program)}")
    shared.close()
    return len(compiled), failures


def _compared(family: Family, program: Program, compiled: Any) -> Iterator[str]:
    for sizes in family.sizes(program):
        named = {s.name: n for s, n in sizes.items()}
        inputs = family.inputs(program, sizes)
        stated = replace(program, numerics=TORCH)
        bounds = derive_bounds(stated, inputs, sizes=named, externs=EXTERNS)
        result = compiled.run(inputs, sizes=named)
        got = {name: result.read(name) for name in (*program.outputs, *program.inputs)}
        found = outside(bounds, got, undecidable=1.0)
        if found and not shows_bits_of_nan(program, inputs, named):
            yield "\n".join([f"sizes {named}", *map(str, found), show_program(program)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=FAMILIES, default=None)
    asked = parser.parse_args()
    done, bad, start, seen = 0, 0, time.time(), Counter[str]()
    chance = random.Random(asked.seed)
    number = asked.seed
    with tempfile.TemporaryDirectory() as folder:
        options = Options(cache_dir=folder)
        while done < asked.cases:
            name = asked.family or chance.choice(list(FAMILIES))
            count, failures = run_batch(name, BATCH, number, options)
            for text in failures:
                print(f"FAILED --seed {number} --family {name}\n{text}", flush=True)
            done, bad = done + max(count, 1), bad + len(failures)
            seen[name] += count
            number = chance.randrange(1 << 32)
    rate = done / (time.time() - start)
    print(f"{done} programs {dict(seen)}, seed {asked.seed}, {rate:.0f} a second: {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
