"""Compiling C at run time: finds a compiler, keeps what it made, loads it, says why not.

loaded = load_shared(source, flags=("-O2",), options=ctx.options)
if loaded.verdict:
    loaded.library.some_function(...)

The key under which a library is kept is a digest of everything that decides its content: source,
flags, the compiler with its version, the kind of machine and what its processor can do.
code_cache.py keeps the libraries and verifies them before they are loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from treadle.core.code_cache import VERSION, CodeCache
from treadle.core.errors import UsageError
from treadle.core.options import Options, cache_folder
from treadle.core.verdict import YES, Verdict, no

ALWAYS = ("-shared", "-fPIC")
COMMON_NAMES = ("cc", "gcc", "clang")
TIME_LIMIT = 300.0
ASK_LIMIT = 20.0
SHOWN_ERROR_LINES = 20


@dataclass(frozen=True, slots=True)
class Compiled:
    """A shared library on disk, or the reason why there is none.

    `path` is empty exactly if `verdict` refuses; `is_new` says whether the compiler ran.
    """

    path: str
    verdict: Verdict
    command: tuple[str, ...] = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class LoadedLibrary:
    """A shared library in this process (of ctypes), or the reason why there is none."""

    library: Any
    verdict: Verdict


def code_cache(options: Options) -> CodeCache:
    """Where these options keep compiled code."""
    return CodeCache(cache_folder(options), options.cache_limit)


def find_compiler(options: Options) -> tuple[str, ...]:
    """The command that compiles C, without arguments of ours; empty if there is none."""
    if options.cc is not None:
        words = _words(options.cc)
        found = shutil.which(words[0]) if words else None
        return (found, *words[1:]) if found else ()
    for name in COMMON_NAMES:
        if found := shutil.which(name):
            return (found,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return ()


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote that is not closed: no such command
        return []


def load_shared(
    source: str, *, flags: tuple[str, ...] = (), options: Options, suffix: str = ".c"
) -> LoadedLibrary:
    """Compile one source text, or find it compiled, and load it.

    A kept library that the system will not load, whatever its checksum says, is made again once:
    it may be from before an upgrade of the system's own libraries.
    """
    import ctypes

    while True:
        made = compile_shared(source, flags=flags, options=options, suffix=suffix)
        if not made.verdict:
            return LoadedLibrary(None, made.verdict)
        try:
            return LoadedLibrary(ctypes.CDLL(made.path), made.verdict)
        except OSError as e:
            if not os.path.exists(made.path):
                continue  # another process made room just now
            if made.is_new:
                return LoadedLibrary(None, no("TOOL005", file=made.path, reason=str(e)))
        try:
            code_cache(options).discard(os.path.basename(os.path.dirname(made.path)))
        except UsageError as e:
            return LoadedLibrary(None, no("TOOL004", reason=e.message))


def compile_shared(
    source: str, *, flags: tuple[str, ...] = (), options: Options, suffix: str = ".c"
) -> Compiled:
    """Compile one source text to a shared library, or find it compiled already."""
    compiler = find_compiler(options)
    if not compiler:
        asked = options.cc or ", ".join((*COMMON_NAMES, "ziglang"))
        return Compiled("", no("TOOL001", looked_for=asked))
    key = _key(source, flags, compiler, suffix)
    cache = code_cache(options)
    try:
        if found := cache.find(key):
            return Compiled(found, YES, compiler)
        with cache.workshop() as work:
            library = os.path.join(work, "made.so")
            command = (*compiler, *ALWAYS, "-o", library)
            made = _compile(source, flags, command, suffix, work, library)
            if not made.verdict:
                return made
            kept = cache.put(key, made.path, shlex.join(made.command), work)
            return Compiled(kept, YES, made.command, is_new=True)
    except UsageError as e:
        return Compiled("", no("TOOL004", reason=e.message))


@dataclass(frozen=True, slots=True)
class SourcePart:
    """One of several source texts of a library, with flags of its own."""

    source: str
    flags: tuple[str, ...]


def compile_parts(
    parts: Sequence[SourcePart], *, libraries: tuple[str, ...] = (), options: Options
) -> Compiled:
    """Compile several source texts to one shared library, or find it compiled already."""
    compiler = find_compiler(options)
    if not compiler:
        asked = options.cc or ", ".join((*COMMON_NAMES, "ziglang"))
        return Compiled("", no("TOOL001", looked_for=asked))
    all_of_it = json.dumps([[part.source, part.flags] for part in parts])
    key = _key(all_of_it, libraries, compiler, ".parts")
    cache = code_cache(options)
    try:
        if found := cache.find(key):
            return Compiled(found, YES, compiler)
        with cache.workshop() as work:
            objects: list[str] = []
            for k, part in enumerate(parts):
                objects.append(os.path.join(work, f"part{k}.o"))
                command = (*compiler, "-c", "-fPIC", "-o", objects[-1])
                made = _compile(part.source, part.flags, command, ".c", work, objects[-1])
                if not made.verdict:
                    return made
            library = os.path.join(work, "made.so")
            command = (*compiler, *ALWAYS, "-o", library, *objects, *libraries)
            made = _carried_out(command, library)
            if not made.verdict:
                return made
            kept = cache.put(key, made.path, shlex.join(made.command), work)
            return Compiled(kept, YES, made.command, is_new=True)
    except UsageError as e:
        return Compiled("", no("TOOL004", reason=e.message))


def why_not_compiled(verdict: Verdict) -> str:
    """A refusal of this module in one line that names the cause."""
    facts = verdict.facts
    first = next(iter(str(facts.get("reason", "")).strip().splitlines()), "")
    sentences = {
        "TOOL001": f"no C compiler was found (looked for: {facts.get('looked_for')})",
        "TOOL002": f"the C compiler failed: {first} (command: {facts.get('command')})",
        "TOOL004": first,
        "TOOL005": f"the compiled code cannot be loaded: {first}",
    }
    return f"{sentences.get(verdict.code, verdict)} [{verdict.code}]"


def _compile(
    source: str, flags: Sequence[str], compiler: tuple[str, ...], suffix: str, work: str, made: str
) -> Compiled:
    """Compile one text; the command says where `made` goes."""
    source_file = os.path.join(work, f"source{suffix}")
    # Libraries such as -lm must follow the source that needs them, options may.
    command = (*compiler, source_file, *flags)
    try:
        with open(source_file, "w", encoding="utf-8") as f:
            f.write(source)
    except OSError as e:
        reason = f"the cache folder cannot be used: {work}: {e.strerror or e}"
        return Compiled("", no("TOOL004", reason=reason), command)
    return _carried_out(command, made)


def _carried_out(command: tuple[str, ...], made: str) -> Compiled:
    """Run the compiler, which is to write the file `made`."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT
        )
    except subprocess.TimeoutExpired:
        reason = f"still running after {TIME_LIMIT:.0f} s"
        return Compiled("", no("TOOL002", command=shlex.join(command), reason=reason), command)
    except OSError as e:
        reason = f"{command[0]}: {e.strerror or e}"
        return Compiled("", no("TOOL002", command=shlex.join(command), reason=reason), command)
    if done.returncode != 0 or not os.path.exists(made):
        lines = (done.stderr or done.stdout).strip().splitlines()[:SHOWN_ERROR_LINES]
        reason = "\n".join(lines) or f"exit code {done.returncode}, and no library was written"
        return Compiled("", no("TOOL002", command=shlex.join(command), reason=reason), command)
    return Compiled(made, YES, command, is_new=True)


# ------------------------------------------------------------------------------- keys


def _key(source: str, flags: Sequence[str], compiler: tuple[str, ...], suffix: str) -> str:
    """The name of what would be made: different if anything that decides its content is."""
    parts = {
        "version": VERSION,
        "source": source,
        "suffix": suffix,
        "flags": [*ALWAYS, *flags],
        "compiler": [*compiler, *_identity(compiler, _stamp(compiler[0]))],
        "machine": [sys.platform, platform.machine(), _processor()],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


def _stamp(program: str) -> tuple[str, int, int]:
    """A program on disk: another one, or a newer one, has another stamp."""
    try:
        about = os.stat(program)
        return os.path.realpath(program), about.st_size, about.st_mtime_ns
    except OSError:
        return program, 0, 0


@lru_cache(maxsize=16)
def _identity(compiler: tuple[str, ...], stamp: tuple[str, int, int]) -> tuple[str, ...]:
    """Who the compiler says it is: a wrapper on disk may stay the same when it is upgraded."""
    try:
        done = subprocess.run(
            (*compiler, "--version"), capture_output=True, text=True, errors="replace",
            timeout=ASK_LIMIT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = done.stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    return (*map(str, stamp), said)


@lru_cache(maxsize=1)
def _processor() -> str:
    """What code for this processor may use: caches may be shared between machines."""
    lines = [platform.processor()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                if not line.strip():
                    break  # the first processor speaks for all
                if line.startswith(("vendor_id", "model name", "flags", "Features", "isa")):
                    lines.append(line.strip())
    except OSError:
        pass
    return "\n".join(lines)
