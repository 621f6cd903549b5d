"""The backend Dynamo calls: `torch.compile(model, backend="treadle")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from treadle.core.errors import TreadleError, UsageError
from treadle.core.options import Options
from treadle.core.suggest import suggestion_notes
from treadle.frontends.torch import compat
from treadle.frontends.torch.capture import log
from treadle.frontends.torch.capture.bias_apart import take_bias_apart
from treadle.frontends.torch.capture.channels_last import prefer_channels_last
from treadle.frontends.torch.capture.compile import (
    Saved,
    Settings,
    compile_graph,
    not_captured,
)
from treadle.frontends.torch.capture.complex_pairs import compute_with_pairs
from treadle.frontends.torch.capture.decompositions import decompositions
from treadle.frontends.torch.capture.edges_around import put_edges_around
from treadle.frontends.torch.capture.even_bags import take_apart_even_bags
from treadle.frontends.torch.capture.even_products import even_out_products
from treadle.frontends.torch.capture.own_steps import OwnSteps
from treadle.frontends.torch.capture.partition import partition_for
from treadle.frontends.torch.capture.parts_beside import put_parts_beside
from treadle.frontends.torch.capture.relu_in_product import take_relu_into_products
from treadle.frontends.torch.capture.resized_by_library import keep_resizing_whole
from treadle.frontends.torch.capture.way_in import Entered, shortened
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.frontends.torch.lowering.origins import input_names
from treadle.runtime.hosts.torch_gpu import start_compilers

NAME = "treadle"
MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"policy": "fast"},
    "max-autotune-no-cudagraphs": {"policy": "fast"},
}
"""TorchInductor's mode names, and what each means here."""


def treadle(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> Callable[..., Any]:
    """Compile a captured graph; what Dynamo calls with the graph and fake inputs."""
    return compile_with(read_settings(mode, options), gm, example_inputs)


def compile_with(
    settings: Settings, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[..., Any]:
    """Compile a captured graph, forward and backward, with the given settings."""
    saved, steps = Saved(inputs=input_names(gm.graph)), OwnSteps()
    entered = Entered()
    settings = replace(settings, options=log.with_what_logs_need(settings.options))
    start_compilers(example_inputs, settings.options)
    take_apart_even_bags(gm.graph)
    keep_resizing_whole(gm.graph)
    put_edges_around(gm.graph)

    def compiler(kind: GraphKind) -> Callable[..., Any]:
        return partial(_compile, kind, settings, saved, entered)

    try:
        whole = compat.aot_compile(
            gm,
            example_inputs,
            forward=compiler(GraphKind.FORWARD),
            backward=compiler(GraphKind.BACKWARD),
            inference=compiler(GraphKind.INFERENCE),
            decompositions=decompositions(steps, _asks_for_gradients(example_inputs)),
            partition=partition_for(settings, steps),
        )
        return shortened(whole, entered)
    except (TreadleError, *compat.FOR_DYNAMO):
        raise
    except Exception as e:
        return not_captured(gm, e, settings, steps)


def _asks_for_gradients(given: Sequence[Any]) -> bool:
    """Whether torch will want a backward graph, too."""
    return torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in given)


def _compile(
    kind: GraphKind,
    settings: Settings,
    saved: Saved,
    entered: Entered,
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
) -> Callable[..., Any]:
    donated = compat.donated_inputs() if kind is GraphKind.BACKWARD else ()
    if kind is GraphKind.INFERENCE:  # what is trained is divided, and looked through then
        compute_with_pairs(gm)
        take_bias_apart(gm)
        take_relu_into_products(gm)
        even_out_products(gm)
        put_parts_beside(gm)
        if settings.options.channels_last:
            prefer_channels_last(gm)
    compiled = compile_graph(gm, kind, settings, donated, saved)
    entered.note(kind, compiled)
    return compiled


def read_settings(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    """The settings behind `mode=` and `options=`; unknown names are refused with the known ones."""
    if mode is not None and mode not in MODES:
        notes = suggestion_notes(mode, list(MODES), "modes")
        raise UsageError(f"unknown mode '{mode}'", code="OPT002", notes=notes)
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"options must be a dict, not {options!r}", code="OPT002")
    asked = {**MODES[mode or "default"], **(options or {})}
    return Settings(Options.from_env().with_(**asked))
