"""Build a program by hand, schedule it, run it by the interpreter, and write its page.

python examples/build_a_program.py
"""

from __future__ import annotations

import numpy as np

from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import run
from treadle.ir.text import show_program
from treadle.lab.cli import main as treadle

ROWS, COLUMNS = 64, 128


def main() -> None:
    b = ProgramBuilder("scaled")
    x = b.input("x", "f32", [ROWS, COLUMNS])
    total = b.buffer("total", "f32", [ROWS])
    y = b.output("y", "f32", [ROWS, COLUMNS])
    with b.loop("add_up", [ROWS], reduce=[COLUMNS]) as k:
        i, j = k.vars
        k.store(total, (i,), k.sum(k.load(x, i, j)))
    with b.loop("divide", [ROWS, COLUMNS]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load(x, i, j) / k.load(total, i))
    program = b.build()
    with open("scaled.txt", "w", encoding="utf-8") as file:
        file.write(show_program(program))
    data = np.random.default_rng(0).random((ROWS, COLUMNS), dtype=np.float32)
    found = run(program, {"x": data}).read("y")
    print("rows add up to one:", bool(np.allclose(found.sum(axis=1), 1, atol=1e-5)))
    treadle(["schedule", "scaled.txt"])
    treadle(["why", "scaled.txt", "add_up", "divide"])
    treadle(["report", "scaled.txt", "-o", "scaled.html"])


if __name__ == "__main__":
    main()
