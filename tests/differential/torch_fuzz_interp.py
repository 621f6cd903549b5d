"""Every graph of a compiled function, run by the reference interpreter as well."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from treadle.frontends.torch import compat
from treadle.frontends.torch.capture.compile import Settings, compile_graph
from treadle.frontends.torch.capture.decompositions import decompositions
from treadle.frontends.torch.capture.own_steps import OwnSteps
from treadle.frontends.torch.lowering.graph import Lowered
from treadle.frontends.torch.lowering.values import Realised
from treadle.index import evaluate
from treadle.ir.interp import run
from treadle.ir.interp.dtypes import NUMPY_TYPES
from treadle.ir.types import DType


def raised_by_torch(error: BaseException) -> bool:
    """Whether an error of AOTAutograd is its own: none of our code was at work when it came."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    inside = files[files.index(compat.__file__) + 1 :]
    here = os.path.dirname(compat.__file__)
    return not any(name.startswith((here, os.path.dirname(__file__))) for name in inside)


class Watching:
    """A backend that compares every run of a graph without calls with the interpreter."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.graphs = self.compared = self.uncaptured = 0
        self.problem: str | None = None

    def __call__(self, gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo calls."""
        try:
            return compat.aot_compile(
                gm,
                inputs,
                forward=partial(self._compile, "forward"),
                backward=partial(self._compile, "backward"),
                inference=partial(self._compile, "graph"),
                decompositions=decompositions(OwnSteps()),
            )
        except Exception as e:
            if isinstance(e, compat.FOR_DYNAMO) or not raised_by_torch(e):
                raise
            self.uncaptured += 1  # like the backend: what torch cannot capture, torch runs
            return gm  # type: ignore[no-any-return]

    def _compile(self, name: str, gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        seen: list[Lowered] = []
        donated = compat.donated_inputs() if name == "backward" else ()
        settings = replace(self.settings, observe=seen.append)
        compiled = compile_graph(gm, name, settings, donated)
        self.graphs += 1
        if not seen or seen[-1].calls:
            return compiled
        return compat.make_boxed(partial(self._both, seen[-1], compiled))

    def _both(self, lowered: Lowered, compiled: Callable[..., Any], args: list[Any]) -> Any:
        given = list(args)
        wanted = expected(lowered, given)
        results = compiled(args)
        self.compared += 1
        for k, (ours, theirs) in enumerate(zip(results, wanted, strict=True)):
            if isinstance(theirs, torch.Tensor) and self.problem is None:
                self.problem = unlike(ours, theirs, lowered, f"result {k} of a graph")
        return results


def unlike(ours: Any, theirs: Any, lowered: Lowered, where: str) -> str | None:
    """What differs between kernels and interpreter, within the roundings of the narrowest type."""
    kinds = {b.dtype for b in lowered.program.buffers}
    narrow = bool(kinds & {DType.BF16, DType.F16})
    rtol = 2e-2 if narrow else 2e-5
    largest = float(theirs.abs().max()) if theirs.numel() and theirs.is_floating_point() else 1.0
    scale = max(largest, 1.0) if np.isfinite(largest) else 1e3
    try:
        torch.testing.assert_close(
            ours, theirs, rtol=rtol, atol=rtol * scale, equal_nan=True, check_stride=False
        )
    except AssertionError as e:
        return f"{where}, compiled against interpreted: " + " ".join(str(e).split())[:200]
    return None


def expected(lowered: Lowered, given: Sequence[Any]) -> list[Any]:
    """What the interpreter makes of a program, as torch tensors; None where it is no tensor."""
    arrays = {name: as_array(given[position]) for position, name in lowered.tensors}
    arrays |= {name: as_array(tensor) for name, tensor in lowered.constants.items()}
    numbers = {name: int(given[position]) for position, name in lowered.numbers}
    done = run(lowered.program, arrays, sizes=numbers)
    values = {s: done.sizes[s.name] for s in lowered.program.sizes}

    def window(value: Any) -> Any:
        if not isinstance(value, Realised):
            return None
        layout = value.layout
        sizes, strides = ([int(evaluate(n, values)) for n in part] for part in
                          (layout.sizes, layout.strides))  # fmt: skip
        row = as_tensor(done._memory.elements(value.buffer.name), value.dtype)
        return row.as_strided(sizes, strides, int(evaluate(layout.offset, values)))

    return [window(value) for value in lowered.outputs]


def as_array(tensor: Any) -> Any:
    """A torch tensor's elements as numpy has them."""
    plain = tensor.detach().clone().contiguous()
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(NUMPY_TYPES[DType.BF16])
    return plain.numpy()


def as_tensor(row: Any, dtype: DType) -> Any:
    """The elements of a storage of the interpreter as a torch tensor."""
    if dtype is DType.BF16:
        return torch.from_numpy(row.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(row.copy())
