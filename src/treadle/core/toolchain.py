"""Compiling C at run time: finds a compiler, keeps what it made, is safe with many processes.

made = compile_shared(source, flags=("-O2",), options=ctx.options)
if made.verdict:
    library = ctypes.CDLL(made.path)

The file's name is a digest of everything that decides its content: source, flags, compiler,
kind of machine. A file that exists is complete, because it is put in place by renaming.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from treadle.core.options import Options, cache_folder
from treadle.core.verdict import YES, Verdict, no

ALWAYS = ("-shared", "-fPIC")
COMMON_NAMES = ("cc", "gcc", "clang")
TIME_LIMIT = 300.0
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


def find_compiler(options: Options) -> tuple[str, ...]:
    """The command that compiles C, without arguments of ours; empty if there is none."""
    if options.cc is not None:
        words = shlex.split(options.cc)
        found = shutil.which(words[0]) if words else None
        return (found, *words[1:]) if found else ()
    for name in COMMON_NAMES:
        if found := shutil.which(name):
            return (found,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return ()


def compile_shared(
    source: str, *, flags: tuple[str, ...] = (), options: Options, suffix: str = ".c"
) -> Compiled:
    """Compile one source text to a shared library, or find it compiled already."""
    compiler = find_compiler(options)
    if not compiler:
        asked = options.cc or ", ".join((*COMMON_NAMES, "ziglang"))
        return Compiled("", no("TOOL001", looked_for=asked))
    name = _digest(source, flags, compiler, suffix)
    folder = cache_folder(options)
    path = os.path.join(folder, f"{name}.so")
    if os.path.exists(path):
        return Compiled(path, YES, compiler)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="compile-", dir=folder) as work:
            return _compile(source, flags, compiler, suffix, work, path)
    except OSError as e:
        reason = f"{e.filename or folder}: {e.strerror or e}"
        return Compiled("", no("TOOL002", command=shlex.join(compiler), reason=reason))


def _compile(
    source: str,
    flags: Sequence[str],
    compiler: tuple[str, ...],
    suffix: str,
    work: str,
    path: str,
) -> Compiled:
    source_file, made = os.path.join(work, f"source{suffix}"), os.path.join(work, "made.so")
    with open(source_file, "w", encoding="utf-8") as f:
        f.write(source)
    # Libraries such as -lm must follow the source that needs them, options may.
    command = (*compiler, *ALWAYS, "-o", made, source_file, *flags)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT
        )
    except subprocess.TimeoutExpired:
        reason = f"still running after {TIME_LIMIT:.0f} s"
        return Compiled("", no("TOOL002", command=shlex.join(command), reason=reason), command)
    if done.returncode != 0 or not os.path.exists(made):
        lines = (done.stderr or done.stdout).strip().splitlines()[:SHOWN_ERROR_LINES]
        reason = "\n".join(lines) or f"exit code {done.returncode}"
        return Compiled("", no("TOOL002", command=shlex.join(command), reason=reason), command)
    os.replace(made, path)
    return Compiled(path, YES, command, is_new=True)


def _digest(source: str, flags: Sequence[str], compiler: Sequence[str], suffix: str) -> str:
    parts = [source, suffix, *flags, "", *compiler, platform.machine(), sys.platform]
    try:
        about = os.stat(compiler[0])
        parts += [str(about.st_size), str(about.st_mtime_ns)]
    except OSError:
        pass
    if any("native" in flag for flag in flags):
        parts.append(_processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def _processor() -> str:
    """What `native` means here: caches may be shared between machines."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            lines = [line for line in f if line.startswith(("model name", "flags", "Features"))]
    except OSError:
        lines = [platform.processor()]
    return "".join(sorted(set(lines)))
