"""What devices answered, kept between runs and handed on as a file.

    answers = TunedAnswers(options, "NVIDIA H200", "sm_90")
    answers.find(question)          what is known: from the file that is named, from earlier runs
    answers.keep(answer)            for the next process

An answer is the number of a schedule among those that the question lists. Nothing of it is ever
carried out: a file that was written by somebody else can pick among our schedules, and no more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from treadle.core.code_cache import CodeCache
from treadle.core.errors import InputError, TreadleError, UsageError
from treadle.core.options import Options, cache_folder
from treadle.core.reading import read_text
from treadle.runtime.triton_builds import triton_version
from treadle.runtime.tuning.questions import Question

VERSION = 1
FOLDER = "tuned"
"""Beside the compiled code: what is small and took a device to find out is kept by itself."""
LIMIT = 64 << 20
"""Bytes of answers that are kept."""
FORMAT = "treadle_tuned"


@dataclass(frozen=True)
class TunedAnswer:
    """How long each schedule of a question took on a device, and which is used."""

    key: str
    gpu: str
    arch: str
    triton: str
    kernel: str
    steps: tuple[str, ...]
    predicted_ns: tuple[float, ...]
    measured_ns: tuple[float, ...]
    """As many as steps; below zero for one that could not be measured."""
    chosen: int

    def fits(self, question: Question) -> bool:
        """Whether it is about these very schedules."""
        texts = tuple([c.text for c in question.candidates])
        return self.key == question.key and self.steps == texts

    @property
    def place(self) -> str:
        """The key it is kept under."""
        return place_of(self.key, self.gpu, self.arch, self.triton)


def place_of(key: str, gpu: str, arch: str, triton: str) -> str:
    """The key of an answer: of the question, the device and the compiler."""
    whole = json.dumps([VERSION, key, gpu, arch, triton])
    return hashlib.sha256(whole.encode()).hexdigest()


class TunedAnswers:
    """What is known about one kind of device."""

    def __init__(self, options: Options, gpu: str, arch: str, is_alone: bool = True) -> None:
        """`is_alone`: whether no other rank must choose alike; then earlier runs count."""
        self.gpu, self.arch, self.triton = gpu, arch, triton_version()
        self.cache = answers_kept(options) if options.autotune and is_alone else None
        self._writing: threading.Thread | None = None
        self.given: Mapping[str, TunedAnswer] = {}
        if options.tuned is not None:
            self.given = _given(options.tuned, gpu, arch, self.triton)

    def find(self, question: Question) -> tuple[TunedAnswer, str] | None:
        """The answer to a question, and where it comes from."""
        given = self.given.get(question.key)
        if given is not None and given.fits(question):
            return given, "file"
        if self.cache is None:
            return None
        kept = _read(self.cache, place_of(question.key, self.gpu, self.arch, self.triton))
        return (kept, "earlier run") if kept is not None and kept.fits(question) else None

    def keep(self, answers: Sequence[TunedAnswer]) -> None:
        """Remember answers, while the caller goes on: a disk may take its time.

        A cache that cannot be used costs the next run, not us.
        """
        if self.cache is not None and answers:
            self._writing = threading.Thread(target=_put_all, args=(self.cache, tuple(answers)))
            self._writing.start()

    def finish(self) -> None:
        """Wait until everything is kept; a process that ends does so by itself."""
        if self._writing is not None:
            self._writing.join()


def answers_kept(options: Options) -> CodeCache:
    """Where answers are kept."""
    return CodeCache(os.path.join(cache_folder(options), FOLDER), LIMIT)


def all_kept(options: Options) -> list[TunedAnswer]:
    """Every answer of earlier runs that can be read, in an order that does not change."""
    cache = answers_kept(options)
    found = [_read(cache, entry.key) for entry in cache.entries()]
    return sorted([one for one in found if one is not None], key=lambda a: (a.gpu, a.kernel, a.key))


def put(cache: CodeCache, answer: TunedAnswer) -> None:
    """Keep an answer; one that is there already stays."""
    os.makedirs(os.path.dirname(cache.root), mode=0o700, exist_ok=True)
    with cache.workshop() as work:
        made = os.path.join(work, "made")
        with open(made, "w", encoding="utf-8") as f:
            json.dump(asdict(answer), f)
        cache.put(answer.place, made, f"tuned {answer.kernel} {answer.gpu}", work)


def _put_all(cache: CodeCache, answers: Sequence[TunedAnswer]) -> None:
    with contextlib.suppress(TreadleError, OSError):
        for one in answers:
            put(cache, one)


def _read(cache: CodeCache, place: str) -> TunedAnswer | None:
    try:
        path = cache.find(place)
        if path is None:
            return None
        with open(path, encoding="utf-8") as f:
            found = answer_of(json.load(f))
        return found if found.place == place else None
    except (TreadleError, OSError, ValueError, RecursionError):
        return None


# --------------------------------------------------------------------------- files


def as_file(answers: Sequence[TunedAnswer]) -> str:
    """TunedAnswers as the text of a file to hand on."""
    rows = [asdict(one) for one in answers]
    return json.dumps({FORMAT: VERSION, "sha256": _digest(rows), "answers": rows}, indent=1) + "\n"


def read_answers(path: str) -> tuple[TunedAnswer, ...]:
    """The answers of a file; one InputError (TUN002) that says what is wrong with it."""
    text = read_text(path, code="TUN002")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        found = str(getattr(e, "msg", e))
        raise _bad(path, "JSON", found, getattr(e, "lineno", None)) from None
    if not isinstance(data, dict) or data.get(FORMAT) != VERSION:
        raise _bad(path, f'an object with "{FORMAT}": {VERSION}', "something else")
    rows = data.get("answers")
    if not isinstance(rows, list):
        raise _bad(path, 'a list "answers"', type(rows).__name__)
    if data.get("sha256") != _digest(rows):
        raise _bad(path, "answers as they were written", "others: their sum differs")
    answers = []
    for k, row in enumerate(rows):
        try:
            answers.append(answer_of(row))
        except ValueError as e:
            raise _bad(path, f"answer {k + 1} to have {e}", "something else") from None
    return tuple(answers)


def answer_of(row: object) -> TunedAnswer:
    """An answer from plain data; a ValueError names what is missing."""
    if not isinstance(row, dict):
        raise ValueError("fields")
    texts = {}
    for name in ("key", "gpu", "arch", "triton", "kernel"):
        if not isinstance(row.get(name), str):
            raise ValueError(f"a text '{name}'")
        texts[name] = row[name]
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
        raise ValueError("a list of texts 'steps'")
    times = []
    for name in ("predicted_ns", "measured_ns"):
        found = row.get(name)
        if not isinstance(found, list) or len(found) != len(steps) or not all(map(_is_time, found)):
            raise ValueError(f"a number for each of its steps in '{name}'")
        times.append(tuple([float(x) for x in found]))
    chosen = row.get("chosen")
    if type(chosen) is not int or not 0 <= chosen < len(steps):
        raise ValueError("the number of one of its steps as 'chosen'")
    return TunedAnswer(**texts, steps=tuple(steps), predicted_ns=times[0], measured_ns=times[1],
                  chosen=chosen)  # fmt: skip


def _is_time(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e15


def for_device(
    answers: Sequence[TunedAnswer], gpu: str, arch: str, triton: str, path: str
) -> dict[str, TunedAnswer]:
    """The answers that are about a device and a compiler; without a name, about the only one."""
    fitting = [a for a in answers if a.arch == arch and a.triton == triton]
    names = sorted({a.gpu for a in fitting})
    if not gpu and len(names) > 1:
        message = f"{path} knows several devices that are {arch}: {', '.join(names)}"
        raise UsageError(message, code="TUN002", notes=["export the answers of one of them"])
    return {a.key: a for a in fitting if a.gpu == gpu or not gpu}


def _given(path: str, gpu: str, arch: str, triton: str) -> Mapping[str, TunedAnswer]:
    about = os.stat(path) if os.path.exists(path) else None
    stamp = (about.st_mtime_ns, about.st_size) if about is not None else (0, 0)
    return _once(path, gpu, arch, triton, stamp)


@lru_cache(maxsize=16)
def _once(
    path: str, gpu: str, arch: str, triton: str, stamp: tuple[int, int]
) -> Mapping[str, TunedAnswer]:
    """The answers of a file; one that is bad is said to be so once, and not used.

    A graph is worth compiling without it. Who compiles for a device that is not here has no such
    reason, and calls `read_answers` first.
    """
    try:
        return for_device(read_answers(path), gpu, arch, triton, path)
    except TreadleError as e:
        warnings.warn(
            f"TUN002: {e}; it is not used; read more: treadle explain TUN002", stacklevel=2
        )
        return {}


def _digest(rows: Sequence[object]) -> str:
    whole = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()


def _bad(path: str, expected: str, found: str, line: int | None = None) -> InputError:
    return InputError(file=path, line=line, expected=expected, found=found, code="TUN002")
