"""What the benches share: timing, the seed folder, results as JSON with their command."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SHARED = HERE.parent.parent / "shared"


def seed_file(prefix: str) -> Path | None:
    """The seed document whose name begins with `prefix`, if the folder is there."""
    found = sorted((SHARED / "seeds").glob(f"{prefix}*"))
    return found[0] if found else None


def cpu_seconds(
    work: Callable[[], object], repeat: int = 3, before: Callable[[], None] = lambda: None
) -> float:
    """The least CPU time of several runs (the others were disturbed), `before` not counted."""
    best = float("inf")
    for _ in range(repeat):
        before()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def parser(doc: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    made.add_argument("--save", action="store_true", help="write bench/results/NAME.json")
    return made


def report(name: str, data: dict[str, Any], save: bool) -> None:
    """Print the result and, if asked, keep it."""
    words = ["python", os.path.relpath(sys.argv[0], HERE.parent), *sys.argv[1:]]
    whole = {
        "bench": name,
        "command": " ".join(words),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        **data,
    }
    text = json.dumps(whole, indent=2)
    print(text)
    if save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(text + "\n")
