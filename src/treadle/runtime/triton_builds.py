"""Triton functions become binaries: from the cache, or from compilers that run beside us.

    builds = compilers_for("sm_90", options)     a process that compiles on all cores, lazily
    later = builds.submit(job)                   goes on at once
    later.result().binary                        waits; a BuildError says what Triton said

A job holds everything that decides the binary, so nothing is compiled twice, in this process or in
the next one. Where no other process can be started, jobs run here.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

from treadle.core.code_cache import CodeCache
from treadle.core.errors import TreadleError
from treadle.core.options import Options, cache_folder
from treadle.runtime import triton_server

VERSION = 1
"""Part of every key: what a job means."""


class BuildError(TreadleError):
    """A function that Triton does not compile, with its reason."""


@dataclass(frozen=True)
class KernelJob:
    """A function to compile, and all that decides what comes of it."""

    text: str
    """A module with the function and what it calls."""
    name: str
    arch: str
    addresses: int
    """How many arguments are addresses, multiples of 16; they come first."""
    sizes: tuple[tuple[str, bool], ...]
    """The type of each further argument, and whether it is a multiple of 16."""
    options: tuple[tuple[str, int], ...]

    def as_data(self) -> dict[str, Any]:
        """The job in the words of the server."""
        return {**asdict(self), "options": dict(self.options)}

    @property
    def key(self) -> str:
        """What equal jobs have in common, in any process."""
        whole = json.dumps([VERSION, triton_version(), self.as_data()], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()


@dataclass(frozen=True)
class KernelBinary:
    """A compiled function: what a driver loads, and how it is launched."""

    name: str
    suffix: str
    warps: int
    shared: int
    """Bytes of shared memory."""
    scratch: int
    """Bytes of device memory that it wants besides its arguments."""
    binary: bytes

    @staticmethod
    def unpacked(content: bytes) -> KernelBinary:
        """The binary from the bytes that the server wrote."""
        card, _, binary = content.partition(b"\n")
        return KernelBinary(**json.loads(card), binary=binary)


class Builds:
    """Compiles for one device; every job once."""

    def __init__(self, arch: str, options: Options) -> None:
        self.arch = arch
        self.cache = CodeCache(cache_folder(options), options.cache_limit)
        self._known: dict[str, Future[KernelBinary]] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._folder = ""
        self._open: dict[int, tuple[KernelJob, Future[KernelBinary]]] = {}
        self._count = 0
        self.compiled = 0
        """Jobs that no cache answered."""
        self._owner = 0
        """Who started the process: a fork of his must neither use nor end it."""

    def submit(self, job: KernelJob, is_spare: bool = False) -> Future[KernelBinary]:
        """The binary of a job, now or later; a spare one waits while others do."""
        key = job.key
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                return known
            found: Future[KernelBinary] = Future()
            self._known[key] = found
        kept = self._kept(key)
        if kept is not None:
            found.set_result(kept)
            return found
        with self._lock:
            self._count += 1
            self.compiled += 1
            number = self._count
            self._open[number] = job, found
        try:
            if not self._sent(number, job, is_spare):
                threading.Thread(target=self._compile_here, args=(number, job), daemon=True).start()
        except BaseException as e:
            self._open.pop(number, None)
            self._known.pop(key, None)  # the next one tries again
            found.set_exception(BuildError(f"{job.name} cannot be compiled: {e}"))
            raise
        return found

    def start(self) -> bool:
        """Start the process that compiles, if it does not run; whether it runs."""
        with self._lock:
            return self._started()

    # -- the process ---------------------------------------------------------------------------
    def _started(self) -> bool:
        is_ours = self._owner == os.getpid()
        if is_ours and self._process is not None and self._process.poll() is None:
            return True
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        command = [sys.executable, "-P", triton_server.__file__, self.arch, str(max(cores, 1))]
        self._settle_in()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            return False
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        return True

    def _settle_in(self) -> None:
        """Have a folder of this process's own, which goes when it ends."""
        if self._owner != os.getpid():
            self._folder, self._owner = tempfile.mkdtemp(prefix="treadle-triton-"), os.getpid()
            atexit.register(self.close)

    def _sent(self, number: int, job: KernelJob, is_spare: bool) -> bool:
        with self._lock:
            if not self._started():
                return False
            assert self._process is not None, "it was just started"
            assert self._process.stdin is not None, "its input is a pipe"
            line = {"id": number, "out": self._place(number), "job": job.as_data()}
            line["spare"] = is_spare
            try:
                self._process.stdin.write(json.dumps(line) + "\n")
                self._process.stdin.flush()
            except OSError:
                return False
        return True

    def _place(self, number: int) -> str:
        return os.path.join(self._folder, f"kernel_{number}")

    def _listen(self, process: subprocess.Popen[str]) -> None:
        """Hear of jobs that ended; when the process ends, what it left is compiled here."""
        assert process.stdout is not None, "its output is a pipe"
        for line in process.stdout:
            answer = json.loads(line)
            self._ended(answer["id"], answer["status"])
        for number, (job, _) in list(self._open.items()):
            self._compile_here(number, job)

    def _compile_here(self, number: int, job: KernelJob) -> None:
        try:
            with self._lock:
                self._settle_in()
            status = triton_server.compile_into(job.as_data(), self._place(number))
        except Exception:
            status = 1  # not even its error could be written
        self._ended(number, status)

    def _ended(self, number: int, status: int) -> None:
        job, found = self._open.pop(number, (None, None))
        if job is None or found is None:
            return
        place = self._place(number)
        try:
            if status != 0:
                raise BuildError(f"{job.name} cannot be compiled for {job.arch}: {_why(place)}")
            with open(place, "rb") as f:
                content = f.read()
            self._keep(job, content)
            found.set_result(KernelBinary.unpacked(content))
        except (OSError, ValueError, TypeError) as e:
            found.set_exception(BuildError(f"{job.name}: its binary cannot be read: {e}"))
        except BaseException as e:
            found.set_exception(e)

    def close(self) -> None:
        """End the process; jobs that are not done never will be."""
        if self._owner != os.getpid():
            return
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._owner = 0

    # -- between runs --------------------------------------------------------------------------
    def _kept(self, key: str) -> KernelBinary | None:
        try:
            path = self.cache.find(key)
            if path is None:
                return None
            with open(path, "rb") as f:
                return KernelBinary.unpacked(f.read())
        except (TreadleError, OSError, ValueError, TypeError):
            return None

    def _keep(self, job: KernelJob, content: bytes) -> None:
        """Put a binary into the cache; a cache that cannot be used costs the next run, not us."""
        try:
            with self.cache.workshop() as work:
                made = os.path.join(work, "made")
                with open(made, "wb") as f:
                    f.write(content)
                self.cache.put(job.key, made, f"triton {job.name} {job.arch}", work)
        except (TreadleError, OSError):
            return


def _why(place: str) -> str:
    """What a compiler said last; one that died said nothing."""
    try:
        with open(place + ".error", encoding="utf-8") as f:
            return f.read()
    except OSError:
        return "the compiler ended without a word"


@lru_cache(maxsize=4)
def compilers_for(arch: str, options: Options) -> Builds:
    """The compilers for a device, one process for all graphs."""
    return Builds(arch, options)


@lru_cache(maxsize=1)
def triton_version() -> str:
    """The version of the compiler, which everything it makes depends on; empty without one."""
    for name in ("triton", "pytorch-triton"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
