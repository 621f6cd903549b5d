"""Starts the ranks of jobs on gloo, each a copy of this process: torch is imported once, not often.

It answers lines of JSON on stdin, {"worker": MODULE, "ranks": [WORDS, ...], "folder": FOLDER,
"seconds": N}, with the exit codes of the ranks, in order. What rank K writes is in
FOLDER/K.out and FOLDER/K.err. Nothing here may start a thread: copies of a process have one only.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

IMPORTED = ("distributed_worker", "overlap_worker", "script_worker")
ALSO_NEEDED = (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
)
"""What a job imports later, which is as much again."""
PAUSE_S = 0.02


def begin(worker: str, words: list[str], folder: Path, rank: int) -> int:
    """A copy of this process that is one rank; its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for name, stream in ((f"{rank}.out", 1), (f"{rank}.err", 2)):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        importlib.import_module(worker).main(words)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ends(ranks: list[int], seconds: float) -> list[int]:
    """The exit codes of ranks; those that take longer are ended, and have the signal's code."""
    codes: dict[int, int] = {}
    until = time.monotonic() + seconds
    while len(codes) < len(ranks):
        for rank in ranks:
            if rank in codes:
                continue
            done, status = os.waitpid(rank, os.WNOHANG)
            if done:
                codes[rank] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGKILL)
        time.sleep(PAUSE_S)
    return [codes[rank] for rank in ranks]


def main() -> None:
    for name in (*IMPORTED, *ALSO_NEEDED):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # ranks do not look for garbage in what they share, which would copy all of it
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TREADLE_CACHE_DIR"] = cache  # many jobs have the same kernels
        for line in sys.stdin:
            asked: dict[str, Any] = json.loads(line)
            jobs, folder = enumerate(asked["ranks"]), Path(asked["folder"])
            ranks = [begin(asked["worker"], words, folder, rank) for rank, words in jobs]
            print(json.dumps(ends(ranks, asked["seconds"])), flush=True)


if __name__ == "__main__":
    main()
