"""A process that compiles Triton functions, each in a copy of itself.

    python -P triton_server.py sm_90 8        jobs as lines of JSON on stdin, answers on stdout

It imports Triton once, compiles a first function so that everything is loaded, and forks for every
job: compilers then run on all cores, which threads of one Python cannot, and one that crashes takes
nobody with it. It stands on Triton and the standard library alone, for it is started as a file:
what a user waits for is its first import.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import re
import select
import signal
import sys
import tempfile
import threading
from typing import Any

NVIDIA, AMD = re.compile(r"sm_(\d+)a?"), re.compile(r"gfx[0-9a-f]+")
LANES = {"cuda": 32, "hip": 64}
FIRST = """import triton
import triton.language as tl


@triton.jit
def first(a0, a1):
    p0 = a0.to(tl.pointer_type(tl.float32))
    p1 = a1.to(tl.pointer_type(tl.bfloat16))
    r = tl.arange(0, 256)
    x = tl.load(p0 + r, r < 200, other=0.0)
    tl.store(p1 + r, (x / tl.sum(tl.exp(x), 0)).to(tl.bfloat16), r < 200)
"""
"""Goes through most of what kernels need of a compiler."""


def target_of(arch: str) -> Any | None:
    """What Triton calls a device; None if nobody knows it."""
    made = importlib.import_module("triton.backends.compiler").GPUTarget
    if found := NVIDIA.fullmatch(arch):
        return made("cuda", int(found[1]), LANES["cuda"])
    return made("hip", arch, LANES["hip"]) if AMD.fullmatch(arch) else None


def load_file(path: str) -> Any:
    """A file of generated text as a Python module."""
    name = os.path.splitext(os.path.basename(path))[0]
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None, "a file that was just written can be loaded"
    assert found.loader is not None, "Python has a loader for its own files"
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def compile_function(path: str, job: dict[str, Any]) -> Any:
    """The function of a file as Triton compiled it: `asm` and `metadata`."""
    compiler: Any = importlib.import_module("triton.compiler")
    function = getattr(load_file(path), job["name"])
    types = ["i64"] * job["addresses"] + [kind for kind, _ in job["sizes"]]
    known = [True] * job["addresses"] + [is_even for _, is_even in job["sizes"]]
    source = compiler.ASTSource(
        function,
        dict(zip(function.arg_names, types, strict=True)),
        constexprs={},
        attrs={(k,): [["tt.divisibility", 16]] for k, even in enumerate(known) if even},
    )
    return compiler.compile(source, target=target_of(job["arch"]), options=job["options"])


def packed(made: Any) -> bytes:
    """A compiled function as bytes: a line of JSON, then the binary."""
    suffix = "cubin" if "cubin" in made.asm else "hsaco"
    about = made.metadata
    scratch = int(getattr(about, "global_scratch_size", 0) or 0)
    card = {
        "name": about.name,
        "suffix": suffix,
        "warps": about.num_warps,
        "shared": int(about.shared),
        "scratch": scratch + int(getattr(about, "profile_scratch_size", 0) or 0),
    }
    return json.dumps(card).encode() + b"\n" + bytes(made.asm[suffix])


def _write(path: str, content: bytes) -> None:
    """Put a file in place as a whole."""
    fresh = f"{path}.{os.getpid()}.{threading.get_ident()}"
    with open(fresh, "wb") as f:
        f.write(content)
    os.replace(fresh, path)


def compile_into(job: dict[str, Any], out: str) -> int:
    """Compile one job into a file; what goes wrong is said in another."""
    try:
        _write(out + ".py", job["text"].encode())
        _write(out, packed(compile_function(out + ".py", job)))
        return 0
    except BaseException as e:
        lines = str(e).strip().splitlines() or [""]
        _write(out + ".error", f"{type(e).__name__}: {lines[0]}".encode())
        return 1


def _warm_up(arch: str) -> None:
    importlib.import_module("triton").knobs.runtime.interpret = False  # whatever others do
    with tempfile.TemporaryDirectory() as folder:
        job = {"name": "first", "addresses": 2, "sizes": [], "arch": arch, "options": {}}
        compile_into({**job, "text": FIRST}, os.path.join(folder, "first"))
    gc.collect()
    gc.freeze()  # copies share what is here already


class Server:
    """Jobs that wait, and those that run in copies of this process.

    Spare ones, which nobody may ever ask for, begin when no other job waits, and leave a core in
    four to those that come.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.waiting: list[dict[str, Any]] = []
        self.running: dict[int, dict[str, Any]] = {}

    def next(self) -> dict[str, Any] | None:
        """Take the job that is to begin now, if there is one."""
        needed = [k for k, one in enumerate(self.waiting) if not one.get("spare")]
        spare = max(self.at_once - self.at_once // 4, 1)
        if not self.waiting or len(self.running) >= (self.at_once if needed else spare):
            return None
        return self.waiting.pop(needed[0] if needed else 0)

    def start(self) -> None:
        """Begin as many jobs as may run at once."""
        while (one := self.next()) is not None:
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os._exit(compile_into(one["job"], one["out"]))
            self.running[child] = one

    def collect(self) -> None:
        """Tell of every job that has ended."""
        while self.running:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            answer = {"id": self.running.pop(child)["id"], "status": code}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def main(arch: str, at_once: int) -> None:
    """Serve until the other side closes the pipe."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's, meant for the other side
    _warm_up(arch)
    server, left = Server(at_once), b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if 0 in ready:
            found = os.read(0, 1 << 20)
            if not found:
                return
            *lines, left = (left + found).split(b"\n")
            server.waiting += [json.loads(line) for line in lines]
        server.collect()
        server.start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
