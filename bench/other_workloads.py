"""Many small workloads on the CPU beside the shared twelve: speed over eager and the peer, errors.

  python bench/other_workloads.py [--save] [--only norm,decode] [--rounds 25] [--forms treadle]

A case is a line of `other_workloads.txt`: a function of tensors with the sizes of its arguments;
those with a `*` have gradients, and a backward pass from random gradients follows. Every case is
measured in each of its types: eager and compiled forms take turns, CPU time of one thread counts,
`over_eager` and `over_peer` are medians over rounds. `treadle_error` is the largest error against
eager in f64, relative to the largest element; `eager_error` eager's own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from common import HERE, parser, report
from cpu_workloads import mean

WARM = 4
F, B, H, D = "f32", "bf16", "f16", "f64"
CASES = (HERE / "other_workloads.txt").read_text("utf-8")
"""name | types | what is computed | arguments: name, * with a gradient, + positive, sizes"""


def cl(x: Any) -> Any:
    """Channels last."""
    import torch

    return x.contiguous(memory_format=torch.channels_last)


def gru(x: Any, h: Any, w: Any, u: Any) -> Any:
    """One step of a gated recurrent unit."""
    import torch

    a, b = (x @ w.t()).chunk(3, -1), (h @ u.t()).chunk(3, -1)
    reset, update = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
    return update * h + (1 - update) * torch.tanh(a[2] + reset * b[2])


class Case:
    """One row of the table in one type."""

    def __init__(self, row: str, kind: str) -> None:
        import torch

        self.name, _, self.text, given = (cell.strip() for cell in row.split("|"))
        known = {F: torch.float32, B: torch.bfloat16, H: torch.float16, D: torch.float64}
        self.kind, self.dtype = kind, known[kind]
        self.arguments = [self._argument(one) for one in given.split()]

    def _argument(self, text: str) -> tuple[str, Any, bool]:
        import torch

        name, sizes, grad = text[0], text.lstrip("abcdefghijklmnopqrstuvwxyz"), "*" in text
        positive = sizes.startswith("+")
        shape = [int(n) for n in sizes.lstrip("*+").split(",")]
        if name == "i":
            return name, torch.randint(0, 1 << 20, shape), False
        value = torch.randn(shape) * 0.5
        return name, (value.abs() + 0.1 if positive else value).to(self.dtype), grad

    def function(self, tag: str) -> Callable[..., Any]:
        """The case as a function of its own code."""
        import torch
        from torch.nn import functional

        names = ", ".join(name for name, _, _ in self.arguments)
        known = {"torch": torch, "F": functional, "cl": cl, "gru": gru}
        text = f"def {self.name}_{self.kind}_{tag}({names}):\n    return {self.text}\n"
        exec(compile(text, f"<{self.name}>", "exec"), known)
        made: Callable[..., Any] = known[f"{self.name}_{self.kind}_{tag}"]  # type: ignore[assignment]
        return made

    def inputs(self, wide: bool = False) -> list[Any]:
        """Fresh arguments; `wide` ones in f64."""
        found = []
        for _, value, grad in self.arguments:
            one = value.double() if wide and value.is_floating_point() else value.clone()
            found.append(one.requires_grad_(grad))
        return found


def run(f: Callable[..., Any], inputs: list[Any], given: list[Any]) -> list[Any]:
    """What a function gives, and the gradients of what has some, from gradients that are given.

    Where none are given yet, random ones are made.
    """
    import torch

    out = [t for t in torch.utils._pytree.tree_leaves(f(*inputs)) if isinstance(t, torch.Tensor)]
    wanted = [x for x in inputs if x.requires_grad]
    if not wanted:
        return out
    start = [t for t in out if t.requires_grad]
    if not given:
        given += [torch.randn_like(t) for t in start]
    return [*[t.detach() for t in out], *torch.autograd.grad(start, wanted, given)]


def error(found: list[Any], exact: list[Any]) -> float:
    """The largest error, relative to the largest element of each result."""
    worst = 0.0
    for a, b in zip(found, exact, strict=True):
        if not a.numel() or not a.is_floating_point():
            continue
        same = a.double().nan_to_num(), b.double().nan_to_num()
        worst = max(worst, float((same[0] - same[1]).abs().max() / (same[1].abs().max() + 1e-9)))
    return float(f"{worst:.2g}")


def measure(case: Case, forms: list[str], rounds: int) -> dict[str, Any]:
    """One case by all forms."""
    import torch

    torch._dynamo.reset()
    functions = {"eager": case.function("eager")}
    row: dict[str, Any] = {"case": case.name, "type": case.kind}
    inputs, given = case.inputs(), list[Any]()
    found = run(functions["eager"], inputs, given)
    exact = run(functions["eager"], case.inputs(wide=True), [g.double() for g in given])
    row["eager_error"] = error(found, exact)
    for form in forms:
        functions[form] = torch.compile(case.function(form), backend=form, dynamic=False)
        row[f"{form}_error"] = error(run(functions[form], inputs, given), exact)
    times: dict[str, list[float]] = {form: [] for form in functions}
    for k in range(WARM + rounds):
        for form in list(functions) if k % 2 else list(reversed(functions)):
            start = time.thread_time()
            run(functions[form], inputs, given)
            if k >= WARM:
                times[form].append(time.thread_time() - start)
    row["us"] = {form: round(median(taken) * 1e6, 1) for form, taken in times.items()}
    for key, of in (("over_eager", "eager"), ("over_peer", "inductor")):
        if of in times and "treadle" in times:
            pairs = zip(times["treadle"], times[of], strict=True)
            row[key] = round(median([b / a for a, b in pairs]), 2)
    return row


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", default="")
    made.add_argument("--rounds", type=int, default=25)
    made.add_argument("--forms", default="inductor,treadle")
    asked = made.parse_args()
    import torch

    torch.set_num_threads(1)
    rows = []
    for line in CASES.strip().splitlines():
        name, kinds, *_ = (cell.strip() for cell in line.split("|"))
        if asked.only and not any(part in name for part in asked.only.split(",")):
            continue
        for kind in kinds.split():
            torch.manual_seed(0)
            try:
                rows.append(measure(Case(line, kind), asked.forms.split(","), asked.rounds))
            except Exception as e:
                rows.append(
                    {"case": name, "type": kind, "failed": f"{type(e).__name__}: {e}"[:300]}
                )
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    means = {}
    for key in ("over_eager", "over_peer"):
        found = [row[key] for row in rows if key in row]
        means[key] = mean(found) if found else None
    report("other_workloads", {"threads": 1, **means, "rows": rows}, asked.save)


if __name__ == "__main__":
    main()
