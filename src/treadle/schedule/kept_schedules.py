"""Schedules kept between runs: a graph that was scheduled before is not scheduled again.

    kept = KeptSchedules(options)
    kept.find(text)                 what became of a program with this text, or None
    kept.keep(text, scheduled)      for the next process

A schedule follows from the program's text, the options and our own code alone (the cost model asks
nothing of the machine it runs on), so these are its key; `core/code_cache.py` keeps it, checked and
private as libraries are. What nobody has asked for is not there: the program before its kernels is
read when somebody wants it, decisions are made once more for a report.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import treadle
from treadle.core.code_cache import CodeCache
from treadle.core.errors import TreadleError
from treadle.core.options import Options, cache_folder
from treadle.ir.program import Program
from treadle.ir.text import parse_program, show_program

FOLDER = "schedules"
LIMIT = 128 << 20
"""Bytes of schedules that are kept."""
LEAST_OPERATIONS = 4
"""Fewer are scheduled sooner than a file is found."""
NOT_DECIDING = ("cache_dir", "cache_limit", "cc", "report", "report_times", "reuse", "host")
"""Options that no pass asks for."""
SOURCES = (".py", ".c", ".h")


@dataclass(frozen=True)
class KeptSchedule:
    """What became of a program, as two texts: read when it is asked for."""

    program_text: str
    kernels_text: str

    def program(self) -> Program:
        """Operations in groups, in order."""
        return parse_program(self.program_text)

    def kernels(self) -> Program:
        """The same as kernels."""
        return parse_program(self.kernels_text)


@dataclass(frozen=True)
class KeptSchedules:
    """The schedules of earlier runs under one set of options."""

    options: Options

    @property
    def may_be_asked(self) -> bool:
        """Whether nobody wants to see passes at work, for which they have to run."""
        o = self.options
        return not (o.debug or o.dump or o.explain or o.check > 1 or o.stop_after is not None)

    def find(self, program: Program, text: str) -> KeptSchedule | None:
        """What became of a program in an earlier run."""
        if not self._is_worth_it(program):
            return None
        with contextlib.suppress(TreadleError, OSError, ValueError, RecursionError):
            path = schedules_kept(self.options).find(self._key(text))
            if path is not None:
                found = json.loads(Path(path).read_text("utf-8"))
                return KeptSchedule(found["program"], found["kernels"])
        return None

    def keep(self, given: Program, text: str, program: Program, kernels: Program) -> None:
        """Remember what became of a program; a cache that cannot be used costs the next run only.

        Not beside the caller: who forks would take along half of it.
        """
        if self._is_worth_it(given):
            content = {"program": show_program(program), "kernels": show_program(kernels)}
            _put(schedules_kept(self.options), self._key(text), content)

    def _is_worth_it(self, program: Program) -> bool:
        return self.may_be_asked and len(program.ops) >= LEAST_OPERATIONS

    def _key(self, text: str) -> str:
        deciding = {k: v for k, v in asdict(self.options).items() if k not in NOT_DECIDING}
        costs = self.options.cost_file
        measured = hashlib.sha256(Path(costs).read_bytes()).hexdigest() if costs else None
        parts = [_own_code(), repr(sorted(deciding.items())), measured, text]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def schedules_kept(options: Options) -> CodeCache:
    """Where schedules are kept."""
    return CodeCache(os.path.join(cache_folder(options), FOLDER), min(LIMIT, options.cache_limit))


def _put(cache: CodeCache, key: str, content: dict[str, str]) -> None:
    with contextlib.suppress(TreadleError, OSError):
        os.makedirs(os.path.dirname(cache.root), mode=0o700, exist_ok=True)
        with cache.workshop() as work:
            made = os.path.join(work, "made")
            Path(made).write_text(json.dumps(content), "utf-8")
            cache.put(key, made, "a schedule", work)


@lru_cache(maxsize=1)
def _own_code() -> str:
    """Which version of Treadle this is, also while somebody works on it."""
    whole = hashlib.sha256(treadle.__version__.encode())
    for line in sorted(_files(str(Path(treadle.__file__).parent))):
        whole.update(line.encode())
    return whole.hexdigest()


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as found:
        for one in found:
            if one.is_dir():
                yield from _files(one.path)
            elif one.name.endswith(SOURCES):
                about = one.stat()
                yield f"{one.path} {about.st_size} {about.st_mtime_ns}"
