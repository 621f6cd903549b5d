"""One model through eager and through the backend: how far apart, and what was generated."""

from __future__ import annotations

import copy
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from model_zoo import Example

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Built, Settings
from treadle.ir.program import Loop

LIBRARY = ("mm", "addmm", "bmm", "baddbmm", "convolution", "scaled_dot_product", "grouped_mm")
"""What the name of a matrix product, a convolution or an attention holds: libraries do them."""


def is_library(overload: str) -> bool:
    """Whether a call is a matrix product, a convolution or an attention."""
    return any(word in overload.split(".")[1] for word in LIBRARY if "." in overload)


@dataclass
class Found:
    """What came out of compiling and running one model."""

    graphs: int = 0
    kernels: int = 0
    loops: int = 0
    nodes: int = 0
    """Nodes of the graphs that became loops or views."""
    calls: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    compile_seconds: float = 0.0
    forward_error: float = 0.0
    gradient_error: float = 0.0
    warned: list[str] = field(default_factory=list)

    @property
    def fallbacks(self) -> Counter[str]:
        """Calls that no library is meant for."""
        return Counter({name: n for name, n in self.calls.items() if not is_library(name)})

    @property
    def share(self) -> float:
        """The share of nodes that became loops or views, library calls not counted."""
        others = self.fallbacks.total()
        return self.nodes / (self.nodes + others) if self.nodes + others else 1.0

    @property
    def share_of_loops(self) -> float:
        """The same among operations of the programs: neither views nor what was inlined count."""
        others = self.fallbacks.total()
        return self.loops / (self.loops + others) if self.loops + others else 1.0


def compare(example: Example) -> Found:
    """Run without and with gradients, eager and compiled; both times on models of their own."""
    found = Found()
    settings = Settings(Options.from_env(), report=partial(_note, found))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found.forward_error = _forward(example, settings, found)
        found.gradient_error = _training(example, settings, found)
    found.warned = [str(w.message) for w in caught if "TOR0" in str(w.message)]
    return found


def _note(found: Found, built: Built) -> None:
    lowered = built.lowered
    found.graphs += 1
    found.nodes += lowered.lowered
    found.calls.update(name for name, _ in lowered.fallbacks)
    found.reasons.update(lowered.fallbacks)
    found.loops += sum(isinstance(op, Loop) for op in lowered.program.ops)
    found.kernels += len(built.runner.compiled.host.kernels)


def _compiled(model: Any, settings: Settings) -> Callable[..., Any]:
    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(model, backend=partial(compile_with, settings))
    return made


def _forward(example: Example, settings: Settings, found: Found) -> float:
    eager = example.model.eval()
    ours = copy.deepcopy(eager)
    with torch.no_grad():
        wanted = eager(**example.inputs)
        got = _timed(found, lambda: _compiled(ours, settings)(**example.inputs))
    return distance(tensors(got), tensors(wanted))


def _training(example: Example, settings: Settings, found: Found) -> float:
    eager = example.model.train()
    ours = copy.deepcopy(eager)
    fast = _compiled(ours, settings)
    wanted = _step(eager, eager, example)
    got = _timed(found, lambda: _step(fast, ours, example))
    return max(distance(got[kind], wanted[kind]) for kind in wanted)


def _timed(found: Found, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    found.compile_seconds += time.perf_counter() - start
    return result


def _step(call: Any, model: Any, example: Example) -> dict[str, dict[str, Any]]:
    """Results, gradients of all parameters and buffers after a forward and a backward pass."""
    result = call(**example.inputs, **example.labels)
    result["loss"].backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    state = dict(model.named_buffers())
    return {"results": tensors(result), "gradients": grads, "buffers": state}


def tensors(result: Any) -> dict[str, Any]:
    """Every tensor a model returned, by where it stands."""
    leaves, _ = torch.utils._pytree.tree_flatten_with_path(dict(result))
    return {str(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


def distance(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """The largest difference of any tensor, as a share of that tensor's largest element.

    A tensor that is next to nothing beside the others (the gradient of a bias that softmax cancels)
    holds rounding errors only: it is measured with a thousandth of the largest element of all.
    """
    assert got.keys() == wanted.keys(), f"{sorted(got)} are not {sorted(wanted)}"
    least = max([_largest(x) for x in wanted.values()], default=0.0) / 1000
    return max([_apart(name, got[name], x, least) for name, x in wanted.items()], default=0.0)


def _largest(tensor: Any) -> float:
    if tensor is None or not tensor.numel():
        return 0.0
    return float(tensor.detach().double().abs().max())


def _apart(name: str, got: Any, wanted: Any, least: float) -> float:
    if wanted is None or got is None:
        assert wanted is got, f"{name}: {got} is not {wanted}"
        return 0.0
    assert got.shape == wanted.shape, f"{name}: {got.shape} is not {wanted.shape}"
    assert got.dtype is wanted.dtype, f"{name}: {got.dtype} is not {wanted.dtype}"
    gap = _largest(got.detach().double() - wanted.detach().double())
    share = gap / max(_largest(wanted), least) if gap else 0.0
    return share if share == share else float("inf")
