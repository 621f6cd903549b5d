"""The schedule of a program is the same in every process, whatever its hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import sys
sys.path.insert(0, {bench!r})
from graph_scale import FAMILIES
from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import show_program
from treadle.schedule.pipeline import run_pipeline
for name, make in FAMILIES.items():
    program = make(120)
    for policy in ("balanced", "inductor"):
        options = Options(policy=policy)
        ctx = Ctx(options, cost_model(program, options), Journal())
        print(show_program(run_pipeline(program, ctx)))
        print([(e["question"], e["ops"], e["code"]) for e in ctx.journal.events("verdict")])
"""


def test_schedules_do_not_depend_on_the_hash_seed() -> None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    script = SCRIPT.format(bench=os.path.join(root, "bench"))
    texts = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        environment["PYTHONPATH"] = os.path.join(root, "src")
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout) > 10_000
        texts.add(done.stdout)
    assert len(texts) == 1
