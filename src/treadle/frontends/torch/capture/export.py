"""Capturing a model with torch.export: its arguments, the sizes that vary, what torch says."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import logging
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from treadle.core.errors import UsageError
from treadle.frontends.torch import compat

NOT_CAPTURED = "PKG005"

Dynamic = Mapping[Any, Mapping[int, Any]]
"""For each input, by name or number: which dimensions vary, and what they are called.

A dimension is a name, or (name, least, most).
"""


@dataclass(frozen=True)
class Dimension:
    """A dimension of an input that varies."""

    name: str
    low: int | None = None
    high: int | None = None


def captured_program(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic: Dynamic,
    from_two: bool,
) -> tuple[Any, dict[str, dict[int, Dimension]]]:
    """The program torch.export makes of a model, and which dimensions of its inputs vary."""
    module = model if isinstance(model, torch.nn.Module) else _AsModule(model)
    names = _argument_names(module, args, kwargs)
    dims = _dimensions(dynamic, names, [*args, *kwargs.values()])
    marks = {
        name: {dim: _mark(about) for dim, about in dims[name].items()} if name in dims else None
        for name in names
    }
    shapes = marks if dims else None
    with quietly(), torch.no_grad():
        if shapes is not None and not from_two:
            # Sizes of 0 and 1 too, where torch manages without knowing that they are not.
            with contextlib.suppress(Exception), compat.sizes_of_one_allowed():
                return torch.export.export(module, args, kwargs, dynamic_shapes=shapes), dims
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes), dims
        except Exception as e:
            raise not_exported(e) from e


class _AsModule(torch.nn.Module):
    """A function as a module whose arguments are called what the function's are."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        if inspect.isfunction(function):
            self.forward = _called_forward(function)
            return

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        with contextlib.suppress(TypeError, ValueError):  # built-in functions do not say
            inspect.signature(function)
            functools.update_wrapper(forward, function)
        self.forward = forward


def _called_forward(function: Any) -> Any:
    """The same function under another name: torch notes lines of what is called `forward` only."""
    code = function.__code__.replace(co_name="forward")
    made = types.FunctionType(
        code, function.__globals__, "forward", function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _argument_names(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    try:
        known = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        known = []
    plain = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [plain[k] if k < len(plain) else f"args_{k}" for k in range(len(args))]
    return [*names, *kwargs]


def _dimensions(
    dynamic: Dynamic, names: Sequence[str], values: Sequence[Any]
) -> dict[str, dict[int, Dimension]]:
    """The dimensions that vary, by input; unknown inputs and dimensions are refused."""
    found: dict[str, dict[int, Dimension]] = {}
    for which, dims in dynamic.items():
        if isinstance(which, int) and 0 <= which < len(names):
            which = names[which]
        if which not in names:
            message = f"there is no input {which!r} to have dynamic sizes: {', '.join(names)}"
            raise UsageError(message, code="OPT002")
        value = values[list(names).index(which)]
        rank = value.dim() if isinstance(value, torch.Tensor) else 0
        for dim, about in dims.items():
            if not 0 <= dim < rank:
                message = f"input '{which}' has no dimension {dim}: it has {rank}"
                raise UsageError(message, code="OPT002")
            made = Dimension(about) if isinstance(about, str) else Dimension(*about)
            found.setdefault(which, {})[dim] = made
    return found


def _mark(about: Dimension) -> Any:
    limits = {"min": about.low, "max": about.high}
    given = {name: value for name, value in limits.items() if value is not None}
    return torch.export.Dim.DYNAMIC(**given) if given else torch.export.Dim.DYNAMIC


def not_exported(error: Exception) -> UsageError:
    """The one line about a model that torch cannot capture, with what it says of sizes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    message = f"torch.export cannot take the model: {type(error).__name__}: {first}"
    notes = [line for line in lines[1:] if line.startswith(("-", "File"))][:3]
    return UsageError(message, code=NOT_CAPTURED, notes=notes)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """What torch warns of about itself is not for the user."""
    said = io.StringIO()
    fakes = logging.getLogger("torch._subclasses.fake_tensor")
    before, fakes.disabled = fakes.disabled, True  # it logs what it is about to raise
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", message=".*assigned during export.*")
            # Where torch fails it prints graphs; what a model prints must not mix with results.
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                yield
        sys.stderr.write(said.getvalue())
    finally:
        fakes.disabled = before
