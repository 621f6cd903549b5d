"""Random programs on scheduled loops: what the C code computes stays within the derived bound.

    PYTHONPATH=src python tests/fuzz/scheduled_fuzzer.py --cases 1000000 --seed 0

The programs of tests/property/test_scheduled_c.py with torch's numerics, compared with the
interpreter.

A case is one program on one set of inputs (its run-time sizes, where it has any, and an array for
each input): what its code computes is compared with the interpreter, element by element, within the
bound derived for that program and those inputs. No case is counted twice: a program that was met
before is left out, and so are inputs that a program has seen. A run of which no element has a bound
says nothing and is no case.

Making and compiling a program takes longer than running it, so each runs on several sets of inputs:
first those that the tests use, then drawn ones (`input_kinds.py`) at drawn sizes. The kernels of a
batch of programs are one translation unit, compiled with the flags each of them asks for: names
are made different, and the helpers stand there once. Each batch has a seed and a family of its own,
which are printed with a failure: with them and --cases 1 that batch is run again.

With --threads N every nest that may be shared is, however short, and what N threads compute must
be, bit by bit, what one computes.
"""

from __future__ import annotations

import _ctypes
import argparse
import ctypes
import hashlib
import json
import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))

from focused_programs import crowds, relays
from input_kinds import FLOATS, arrays_of
from product_programs import products
from random_bodies import bodies
from short_nests import short_nests_are_shared
from small_programs import EXTERNS, inputs_for, size_choices, small_programs
from test_c_programs import reads_what_it_accumulates, shows_bits_of_nan
from test_scheduled_c import SORTED_MOVES, TORCH, asks_for_a_position, scheduled
from wide_programs import wide_programs

from treadle.codegen.c.fast_ops import F64, FAST, LIBRARY, LIBRARY_F64, VECTOR
from treadle.codegen.c.remainders import REMAINDERS
from treadle.codegen.c.unit import ENTRY, FAST_FLAGS, USE_THREADS, prelude
from treadle.core.options import Options
from treadle.core.toolchain import LoadedLibrary, load_shared
from treadle.core.verdict import YES
from treadle.index import Symbol
from treadle.ir.interp.compare import random_inputs
from treadle.ir.program import Call, Nop, Program
from treadle.ir.text import show_program
from treadle.runtime import compile_program
from treadle.runtime.kernels import thread_table
from treadle.testing.error_bound import Bounds, derive_bounds, outside
from treadle.testing.strategies import programs

PLAIN = {"special", "sort", "turn", "product", "threads"}
FULL = {
    *PLAIN,
    "fast",
    "halves",
    "whole",
    "stream",
    "product_halves",
    *[f"{VECTOR}{f}" for f in (*FAST, *LIBRARY, *REMAINDERS) if f != "rsqrt"],
    *[f"{VECTOR}{F64}{f}" for f in (*LIBRARY_F64, *REMAINDERS)],
}
BATCH = 150

Sizes = dict[Symbol, int]


def _counts(*counts: int) -> Callable[[Program], list[Sizes]]:
    def choices(program: Program) -> list[Sizes]:
        return [dict.fromkeys(program.sizes, n) for n in (counts if program.sizes else (0,))]

    return choices


def _random(program: Program, sizes: Sizes) -> dict[str, Any]:
    return random_inputs(program, sizes={s.name: n for s, n in sizes.items()})


@dataclass(frozen=True)
class Family:
    """A kind of programs: where they come from, what sizes and inputs they run on.

    `sizes` come first, each with the arrays of `inputs`; what follows is drawn. With `has_indices`
    whole numbers among the inputs are indices, and no sizes but `sizes` are legal.
    """

    strategy: Any
    sizes: Callable[[Program], list[Sizes]]
    inputs: Callable[[Program, Sizes], dict[str, Any]]
    fuses: bool = False
    has_indices: bool = False
    sets: int = 24
    """On how many sets of inputs a program runs at most."""
    weight: int = 2
    """How often it is its turn."""


def _small(strategy: Any) -> Family:
    return Family(strategy, size_choices, inputs_for, fuses=True, has_indices=True)


FAMILIES = {
    "any": Family(programs(), _counts(1, 4), _random),
    "small": _small(small_programs(moves=SORTED_MOVES)),
    "bodies": Family(bodies(), _counts(3, 0), _random),
    "relays": _small(relays()),
    "crowds": _small(crowds()),
    "wide": Family(wide_programs(), _counts(48, 5), _random),
    "products": Family(products(), _counts(0), _random, fuses=True, sets=6, weight=1),
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

    def compile(self, threads: Threads | None) -> None:
        """Compile and load what was added, and say which threads there are."""
        for flags, texts in self.texts.items():
            helpers = FULL if set(FAST_FLAGS) <= set(flags) else PLAIN
            source = "\n".join([prelude(frozenset(helpers)), *texts])
            loaded = load_shared(source, flags=flags, options=self.options)
            assert loaded.verdict, loaded.verdict
            self.libraries[flags] = loaded.library
            if threads is not None:
                loaded.library[USE_THREADS](ctypes.byref(threads.table))

    def close(self) -> None:
        """Let the libraries go: a million programs would not fit."""
        for library in self.libraries.values():
            _ctypes.dlclose(library._handle)


class Threads:
    """Threads of an OpenMP runtime, and how many of them kernels ask for."""

    def __init__(self, most: int) -> None:
        self.most = self.count = most
        self.asked = 0
        """How often a nest asked for more than one."""
        wanted = ctypes.CFUNCTYPE(ctypes.c_int)(self._wanted)
        runtime = ctypes.CDLL("libgomp.so.1")
        self.table = thread_table(runtime, wanted, ctypes.c_int64(os.getpid()))

    def _wanted(self) -> int:
        self.asked += self.count > 1
        return self.count


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


@dataclass
class Tally:
    """What was done: programs that ran, cases that were compared, what was wrong."""

    programs: int = 0
    cases: int = 0
    open_cases: int = 0
    """Runs that say nothing, as no element has a bound: they are no cases."""
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count what another one counted."""
        self.programs += other.programs
        self.cases += other.cases
        self.open_cases += other.open_cases
        self.failures += other.failures


def run_batch(
    name: str,
    count: int,
    number: int,
    options: Options,
    seen: set[bytes] | None = None,
    threads: Threads | None = None,
) -> Tally:
    """What a batch gave: programs drawn by a number, but those that were `seen` already."""
    family, shared, tally = FAMILIES[name], Shared(options), Tally()
    seen, compiled = set() if seen is None else seen, []
    with patch("treadle.runtime.kernels.load_shared", shared.load):
        for k, program in enumerate(drawn(family, count, number)):
            text = show_program(program)
            if not is_fitting(program) or is_known([text.encode()], seen):
                continue
            try:
                built = scheduled(program, family.fuses)
                made = compile_program(built, externs=EXTERNS, optimise=2)
                compiled.append((program, made, np.random.default_rng([number, k])))
            except Exception:
                tally.failures.append(f"{traceback.format_exc()}\n{text}")
    shared.compile(threads)
    for program, made, chance in compiled:
        run_program(family, program, made, chance, tally, threads)
    shared.close()
    return tally


def is_known(parts: Iterable[bytes], seen: set[bytes]) -> bool:
    """Whether something was met before; it has been after this."""
    digest = hashlib.blake2b(b"|".join(parts), digest_size=16).digest()
    known = digest in seen
    seen.add(digest)
    return known


def run_program(
    family: Family,
    program: Program,
    compiled: Any,
    chance: np.random.Generator,
    tally: Tally,
    threads: Threads | None,
) -> None:
    """Compare a program on its sets of inputs, all different."""
    stated, before = replace(program, numerics=TORCH), set[bytes]()
    tally.programs += 1
    for kind, sizes, inputs in input_sets(family, program, chance):
        if is_known([str(sizes).encode(), *[x.tobytes() for x in inputs.values()]], before):
            continue
        try:
            failure = _compared(stated, compiled, sizes, inputs, tally, threads)
        except Exception:
            failure = traceback.format_exc()
        if failure:
            named = {s.name: n for s, n in sizes.items()}
            tally.failures.append(
                f"inputs: {kind}, sizes {named}\n{failure}\n{show_program(program)}"
            )
            return


def input_sets(
    family: Family, program: Program, chance: np.random.Generator
) -> Iterator[tuple[str, Sizes, dict[str, Any]]]:
    """The kind, sizes and arrays of each set of inputs: the fixed ones, then drawn ones."""
    fixed = family.sizes(program)
    for sizes in fixed:
        yield "fixed", sizes, family.inputs(program, sizes)
    for _ in range(family.sets - len(fixed)):
        kind = str(chance.choice(list(FLOATS)))
        sizes = fixed[chance.integers(len(fixed))]
        if not family.has_indices:
            sizes = {s: int(chance.integers(s.lo or 0, (s.hi or 8) + 1)) for s in program.sizes}
        yield kind, sizes, arrays_of(kind, program, sizes, chance, family.has_indices)


def _compared(
    stated: Program,
    compiled: Any,
    sizes: Sizes,
    inputs: dict[str, Any],
    tally: Tally,
    threads: Threads | None,
) -> str:
    """What is out of bounds on a set of inputs, in words; nothing if all is well."""
    named = {s.name: n for s, n in sizes.items()}
    bounds = derive_bounds(stated, inputs, sizes=named, externs=EXTERNS)
    got = _results(compiled, inputs, named)
    found = outside(bounds, got, undecidable=1.0)
    if threads is not None:
        threads.count = 1
        found += _other_bits(bounds, got, _results(compiled, inputs, named))
        threads.count = threads.most
    if found and not shows_bits_of_nan(stated, inputs, named):
        return "\n".join(found)
    if not found and any(np.isfinite(bounds.error(name)).any() for name in stated.outputs):
        tally.cases += 1
    else:
        tally.open_cases += 1
    return ""


def _results(compiled: Any, inputs: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    result = compiled.run(inputs, sizes=sizes)
    names = (*compiled.program.outputs, *compiled.program.inputs)
    return {name: result.read(name) for name in names}


def _other_bits(bounds: Bounds, got: dict[str, Any], alone: dict[str, Any]) -> Iterator[str]:
    """Where one thread computed something else; elements without a bound may be anything."""
    for name, array in got.items():
        known = np.isfinite(bounds.error(name))
        if array[known].tobytes() != alone[name][known].tobytes():
            yield f"{name}: not what one thread computes"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no batch after these")
    parser.add_argument("--family", choices=FAMILIES, default=None)
    parser.add_argument("--threads", type=int, default=None, help="share every nest among them")
    parser.add_argument("--json", default=None, help="a file for the totals")
    asked = parser.parse_args()
    start, seen = time.time(), set[bytes]()
    totals = {name: Tally() for name in FAMILIES}
    turns = [name for name, family in FAMILIES.items() for _ in range(family.weight)]
    chance, number = random.Random(asked.seed), asked.seed
    threads = None if asked.threads is None else Threads(asked.threads)
    sharing = nullcontext() if threads is None else short_nests_are_shared()
    with tempfile.TemporaryDirectory() as folder, sharing:
        options = Options(cache_dir=folder)
        while True:
            name = asked.family or chance.choice(turns)
            tally = run_batch(name, BATCH, number, options, seen, threads)
            for text in tally.failures:
                print(f"FAILED --seed {number} --family {name}\n{text}", flush=True)
            totals[name].add(tally)
            number = chance.randrange(1 << 32)
            found = summary(totals, asked.seed, time.time() - start)
            if found["cases"] >= asked.cases or found["seconds"] >= asked.seconds:
                break
            if asked.json:
                Path(asked.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(sentence(found))
    return 1 if found["failures"] else 0


def summary(totals: dict[str, Tally], number: int, seconds: float) -> dict[str, Any]:
    """All that was counted."""
    whole = Tally()
    for tally in totals.values():
        whole.add(tally)
    return {
        "seed": number,
        "programs": whole.programs,
        "cases": whole.cases,
        "open_cases": whole.open_cases,
        "failures": len(whole.failures),
        "seconds": round(seconds, 1),
        "families": {
            name: {"programs": t.programs, "cases": t.cases} for name, t in totals.items()
        },
    }


def sentence(found: dict[str, Any]) -> str:
    """What was counted, in a line for each family and one for all."""
    lines = [f"{name}: {row}" for name, row in found["families"].items() if row["programs"]]
    rate = found["cases"] / max(found["seconds"], 1e-3)
    lines.append(
        f"{found['cases']} cases of {found['programs']} programs, seed {found['seed']},"
        f" {rate:.0f} cases a second: {found['failures']} failed"
        f" ({found['open_cases']} more runs had no bound)"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
