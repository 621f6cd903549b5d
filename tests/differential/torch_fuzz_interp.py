"""Every graph of a compiled function, run by the reference interpreter as well, with bounds."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch_bounds import BoundedTensor, NoBoundError, bound_for_graph, further_off

from treadle.frontends.torch import compat
from treadle.frontends.torch.capture.compile import Built, Settings, compile_graph
from treadle.frontends.torch.capture.decompositions import decompositions
from treadle.frontends.torch.capture.own_steps import OwnSteps
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.ir.interp import RunError


def raised_by_torch(error: BaseException) -> bool:
    """Whether an error of AOTAutograd is its own: none of our code was at work when it came."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    inside = files[files.index(compat.__file__) + 1 :]
    here = os.path.dirname(compat.__file__)
    return not any(name.startswith((here, os.path.dirname(__file__))) for name in inside)


class Watching:
    """A backend that holds every run of a graph against the bound of its program."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.graphs = self.compared = self.uncaptured = 0
        self.elements = self.unbounded = 0
        self.problem: str | None = None
        self.bounded: list[tuple[Any, BoundedTensor]] = []
        """Results of graphs, with what they should be and how far they may be off."""

    def __call__(self, gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo calls."""
        try:
            return compat.aot_compile(
                gm,
                inputs,
                forward=partial(self._compile, GraphKind.FORWARD),
                backward=partial(self._compile, GraphKind.BACKWARD),
                inference=partial(self._compile, GraphKind.INFERENCE),
                decompositions=decompositions(OwnSteps()),
            )
        except Exception as e:
            if isinstance(e, compat.FOR_DYNAMO) or not raised_by_torch(e):
                raise
            self.uncaptured += 1  # like the backend: what torch cannot capture, torch runs
            return gm  # type: ignore[no-any-return]

    def _compile(self, kind: GraphKind, gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        seen: list[Built] = []
        donated = compat.donated_inputs() if kind is GraphKind.BACKWARD else ()
        settings = replace(self.settings, report=seen.append)
        compiled = compile_graph(gm, kind, settings, donated)
        self.graphs += 1
        return compat.make_boxed(partial(self._both, seen[-1], compiled)) if seen else compiled

    def _both(self, built: Built, compiled: Callable[..., Any], args: list[Any]) -> Any:
        given = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in args]
        try:
            wanted = bound_for_graph(built, given)
        except (NoBoundError, RunError, NotImplementedError):
            return compiled(args)  # errors of the program are eager's as well
        results = compiled(args)
        self.compared += 1
        for k, (ours, bound) in enumerate(zip(results, wanted, strict=True)):
            if bound is None:
                continue
            self.elements += bound.error.numel()
            self.unbounded += int(bound.error.isinf().sum())
            problem = further_off(ours, bound)
            if problem is not None and self.problem is None:
                self.problem = f"result {k} of a graph, compiled: {problem}"
            self.bounded.append((ours, bound))
        return results

    def bound_of(self, tensor: Any) -> BoundedTensor | None:
        """The bound of a tensor that a graph gave, found by where it lies."""
        for ours, bound in reversed(self.bounded):
            if isinstance(ours, torch.Tensor) and _lies_at(ours) == _lies_at(tensor):
                return bound
        return None


def _lies_at(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
