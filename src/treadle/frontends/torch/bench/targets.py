"""What is measured: the user's model or function with its inputs, on a device and of a type.

`file.py:name` may be a module or a function, with `example_inputs` beside it in the file; a class
of modules that needs no arguments; or a factory, called without arguments, that gives the model or
function and its inputs. Inputs are a tuple of arguments, a dict of named ones, or one tensor.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from treadle.core.errors import UsageError
from treadle.core.suggest import suggestion_notes
from treadle.frontends.torch.bench.builtin import MODELS

INPUTS = "example_inputs"
SEED = 0


class TargetError(UsageError):
    """What was named cannot be measured: the user's file, line and what was expected."""


@dataclass(frozen=True)
class Target:
    """A callable and its arguments."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def modules(self) -> list[nn.Module]:
        """The modules that the callable is, or that it names."""
        return list(dict.fromkeys(x for x in _named(self.call) if isinstance(x, nn.Module)))

    def converted(self, change: Callable[[Any], Any]) -> Target:
        """A copy in which modules and tensors are what `change` makes of them."""
        call = _converted_call(self.call, change)
        tree = torch.utils._pytree.tree_map
        return Target(call, tree(change, self.args), tree(change, dict(self.kwargs)))


def load_target(name: str, device: str, dtype: str | None) -> Target:
    """The target a user names, on the device and of the type asked for; TargetError if not."""
    torch.manual_seed(SEED)
    found = _built_in(name) if ":" not in name else _from_file(*name.rsplit(":", 1))
    element = None if dtype is None else getattr(torch, dtype)
    for module in found.modules():
        module.to(device=device)
        if element is not None:
            module.to(dtype=element)

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        is_float = element is not None and x.is_floating_point()
        moved = x.detach().to(device=device, dtype=element if is_float else x.dtype)
        return moved.requires_grad_(x.requires_grad)

    tree = torch.utils._pytree.tree_map
    return Target(found.call, tree(move, found.args), tree(move, dict(found.kwargs)))


def in_double(target: Target) -> Target:
    """A copy of the target whose floating-point weights and inputs are f64."""

    def change(x: Any) -> Any:
        if isinstance(x, nn.Module):
            return copy.deepcopy(x).double()
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            return x.detach().double().requires_grad_(x.requires_grad)
        return x

    return target.converted(change)


class AllDouble(TorchFunctionMode):
    """Meanwhile what asks for a narrower floating-point type gets f64: `x.float()`, `dtype=...`."""

    NARROW = (torch.float32, torch.float16, torch.bfloat16)
    CASTS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)

    def __enter__(self) -> Any:
        self._before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *about: Any) -> None:
        super().__exit__(*about)  # type: ignore[no-untyped-call]
        torch.set_default_dtype(self._before)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.CASTS:
            return args[0].double()
        wide = [
            torch.float64 if a in self.NARROW else a for a in args if isinstance(a, torch.dtype)
        ]
        given = iter(wide)
        args = tuple([next(given) if isinstance(a, torch.dtype) else a for a in args])
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in self.NARROW:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


# ---------------------------------------------------------------------------------------- loading


def _built_in(name: str) -> Target:
    if name not in MODELS:
        notes = suggestion_notes(name, list(MODELS), "built-in models")
        raise TargetError(f"no built-in model '{name}'; a file is named file.py:name", notes=notes)
    call, inputs = MODELS[name]()
    return Target(call, inputs, {})


def _from_file(path: str, name: str) -> Target:
    if not os.path.isfile(path):
        raise TargetError(f"{path}: no such file; expected file.py:name")
    space = _module_of(path)
    if not hasattr(space, name):
        known = [n for n, x in vars(space).items() if callable(x) and not n.startswith("_")]
        raise TargetError(
            f"{path}: no '{name}' in it", notes=suggestion_notes(name, known, "names")
        )
    found, inputs = getattr(space, name), getattr(space, INPUTS, None)
    if not callable(found):
        raise TargetError(
            f"{path}: '{name}' is {type(found).__name__}; expected a model or function"
        )
    is_model = isinstance(found, nn.Module)
    if isinstance(found, type) and issubclass(found, nn.Module):
        found, is_model = _called(found, path, name), True
    if not is_model and not (inputs is not None and _needs_arguments(found)):
        found, inputs = _pair(_called(found, path, name), path, name)
    if inputs is None:
        raise TargetError(f"{path}: '{name}' has no inputs; expected `{INPUTS}` in the file")
    inputs = inputs() if callable(inputs) and not isinstance(inputs, torch.Tensor) else inputs
    return _with_inputs(found, inputs)


def _module_of(path: str) -> Any:
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("bench_target", path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path}: not a Python file")
    space = importlib.util.module_from_spec(spec)
    sys.modules["bench_target"] = space
    try:
        spec.loader.exec_module(space)
    except Exception as e:
        raise TargetError(f"{_place(e, path)}: {said(e)}") from e
    return space


def _called(factory: Callable[[], Any], path: str, name: str) -> Any:
    if _needs_arguments(factory):
        what = f"`{INPUTS}` in the file, or a factory without arguments"
        raise TargetError(f"{path}: '{name}' needs arguments; expected {what}")
    try:
        return factory()
    except Exception as e:
        raise TargetError(f"{_place(e, path)}: {said(e)}") from e


def _pair(made: Any, path: str, name: str) -> tuple[Any, Any]:
    if isinstance(made, tuple | list) and len(made) == 2 and callable(made[0]):
        return made[0], made[1]
    raise TargetError(
        f"{path}: '{name}' gives {type(made).__name__}; expected (model or function, inputs)"
    )


def _with_inputs(call: Any, inputs: Any) -> Target:
    if isinstance(inputs, Mapping):
        return Target(call, (), dict(inputs))
    return Target(call, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {})


def _needs_arguments(call: Callable[..., Any]) -> bool:
    try:
        inspect.signature(call).bind()
    except TypeError:
        return True
    except ValueError:  # one that says nothing about itself
        return False
    return False


def _place(error: BaseException, path: str) -> str:
    """The user's line behind an error."""
    own = os.path.abspath(path)
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
    lines = lines or ([error.lineno] if isinstance(error, SyntaxError) else [])
    return f"{path}:{lines[-1]}" if lines else path


def said(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# ---------------------------------------------------------------------------------------- copying


def _named(call: Any) -> Iterator[Any]:
    """What a callable is, holds and names: its closure, and the globals that its code uses."""
    yield call
    if inspect.ismethod(call):
        yield call.__self__
        call = call.__func__
    if isinstance(call, FunctionType):
        yield from [cell.cell_contents for cell in call.__closure__ or () if _is_filled(cell)]
        yield from [call.__globals__[n] for n in call.__code__.co_names if n in call.__globals__]


def _is_filled(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _converted_call(call: Any, change: Callable[[Any], Any]) -> Any:
    """A callable that names changed copies where the given one names modules and tensors."""
    if isinstance(call, MethodType):
        return MethodType(call.__func__, change(call.__self__))
    if not isinstance(call, FunctionType):
        return change(call)
    known: dict[int, Any] = {}

    def once(x: Any) -> Any:
        if isinstance(x, nn.Module | torch.Tensor) and id(x) not in known:
            known[id(x)] = change(x)
        return known.get(id(x), x)

    own = call.__globals__
    space = {name: once(x) for name, x in own.items()}

    def rebuilt(f: Any) -> Any:
        cells = [
            CellType(once(c.cell_contents)) if _is_filled(c) else c for c in f.__closure__ or ()
        ]
        made = FunctionType(f.__code__, space, f.__name__, f.__defaults__, tuple(cells))
        made.__kwdefaults__ = f.__kwdefaults__
        return made

    for name, x in own.items():
        if isinstance(x, FunctionType) and x.__globals__ is own:
            space[name] = rebuilt(x)
    return rebuilt(call)
