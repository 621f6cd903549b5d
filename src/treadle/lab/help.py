"""The words of `--help` that commands share, and an example of each command."""

from __future__ import annotations

from collections.abc import Mapping

ANY_FILE = "a program, a dump, an XLA file, a memory problem, a journal; - is standard input"
PROGRAM_FILE = "a Treadle program or a dump of TorchInductor or XLA; - is standard input"
PLANNED_FILE = "a program, a dump or a memory problem as CSV; - is standard input"
COMPARED_FILE = "a schedule, program, dump or journal; - is standard input"

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "demo": ("treadle demo --program",),
    "bench": ("treadle bench mlp --backends eager --rounds 3",),
    "show": ("treadle show program.txt", "treadle show - --json < program.txt"),
    "check": ("treadle check program.txt dump.txt",),
    "schedule": ("treadle schedule program.txt -o scheduled.txt --policy memory",),
    "simulate": ("treadle simulate fsdp.txt --hardware h100-8 --worlds 8,64,512",),
    "kernels": ("treadle kernels program.txt --target cpu",),
    "plan": ("treadle plan problem.csv --capacity 16MiB", "treadle plan program.txt --map"),
    "compile": (
        "treadle compile model.py:model --inputs 'f32[8, 16]' --dynamic 0:0=batch -o model.treadle",
        "treadle compile dump.txt --target triton -o kernels",
    ),
    "run": ("treadle run program.treadle --random 0 --repeat 100",),
    "report": ("treadle report program.txt -o out.html",),
    "serve": ("treadle serve . --check",),
    "export": ("treadle export program.txt -o exported.txt --dialect 2.13",),
    "why": ("treadle why program.txt norm_scale norm_apply",),
    "diff": ("treadle diff program.txt scheduled.txt",),
    "explain": ("treadle explain IR012",),
    "env": ("TREADLE_CHECK=2 treadle env",),
    "replay": ("treadle replay repro.pkg",),
    "cache": ("treadle cache", "treadle cache clear"),
    "completion": ("treadle completion bash > completions.bash",),
}
"""Command lines that a test runs, in a folder with files of these names."""

EXIT_CODES = "exit codes: 0 fine, 1 a check failed, 2 bad input or usage"

MEANS_ONE: Mapping[str, str] = {"diff": "the two differ"}
"""What exit code 1 says where it is not that a check failed."""


def epilog(command: str) -> str:
    """What stands below the arguments of a command."""
    lines = "\n".join(f"  {line}" for line in EXAMPLES[command])
    codes = EXIT_CODES.replace("a check failed", MEANS_ONE.get(command, "a check failed"))
    return f"example{'s' if len(EXAMPLES[command]) > 1 else ''}:\n{lines}\n\n{codes}"
