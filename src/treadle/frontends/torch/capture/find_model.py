"""The model that a command line names: `module.py:model`, or a program that torch.export saved.

A module is run like any script that is imported; whatever goes wrong is one line with the place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import torch

from treadle.core.errors import InputError, UsageError
from treadle.core.suggest import suggestion_notes
from treadle.frontends.torch.capture.export import NOT_CAPTURED
from treadle.runtime.hosts.torch_tensors import TORCH_TYPES
from treadle.runtime.packages.input_texts import TensorText

EXAMPLE_INPUTS = "example_inputs"


def model_in_file(file: str, attribute: str) -> tuple[Any, Any]:
    """The model of that name in a Python file, and the file's `example_inputs` if it has them."""
    module = _imported(file)
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(found) if not n.startswith("_")] if found is module else []
            notes = suggestion_notes(part, names, "names in it") if names else []
            raise UsageError(f"{file} has no '{attribute}'", code=NOT_CAPTURED, notes=notes)
        found = getattr(found, part)
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        found = _made(found, file, attribute)
    if not callable(found) or isinstance(found, type):
        kind = type(found).__name__
        message = f"{file}: '{attribute}' is a {kind}: expected a torch.nn.Module or a function"
        raise UsageError(message, code=NOT_CAPTURED)
    examples = getattr(module, EXAMPLE_INPUTS, None)
    if callable(examples):
        try:
            examples = examples()
        except Exception as e:
            raise _raised(file, e, EXAMPLE_INPUTS) from None
    return found, examples


def _made(kind: type, file: str, attribute: str) -> Any:
    try:
        return kind()
    except Exception as e:
        raise _raised(file, e, f"{attribute}()") from None


def _imported(file: str) -> Any:
    """The file as a module, with its own folder first among those that imports look in."""
    if not os.path.isfile(file):
        raise InputError(file=file, expected="a Python file", found="none", code=NOT_CAPTURED)
    name = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(f"treadle_compiled_{name}", file)
    if spec is None or spec.loader is None:
        raise InputError(file=file, expected="a Python file", found="another", code=NOT_CAPTURED)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what it prints is not what we say
            spec.loader.exec_module(module)
    except SyntaxError as e:
        raise InputError(
            file=e.filename or file, line=e.lineno, expected="Python", found=str(e.msg),
            code=NOT_CAPTURED,
        ) from None  # fmt: skip
    except (Exception, SystemExit) as e:
        raise _raised(file, e, "its import") from None
    finally:
        sys.path.remove(os.path.dirname(os.path.abspath(file)))
    return module


def _raised(file: str, error: BaseException, what: str) -> UsageError:
    """One line about what the user's own code raised, with the last line of it that is theirs."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if os.path.abspath(f.filename) == os.path.abspath(file)]
    place = f"{file}:{own[-1].lineno}" if own else file
    first = next(iter(str(error).splitlines()), "")
    return UsageError(f"{place}: {what} raised {type(error).__name__}: {first}", code=NOT_CAPTURED)


def exported_program(file: str) -> Any:
    """A program that torch.export saved."""
    if not os.path.isfile(file):
        raise InputError(
            file=file, expected="a file of torch.export", found="none", code=NOT_CAPTURED
        )
    try:
        return torch.export.load(file)
    except Exception as e:
        first = next(iter(str(e).splitlines()), type(e).__name__)
        raise InputError(
            file=file, expected="a program that torch.export.save wrote", found=first,
            code=NOT_CAPTURED,
        ) from None  # fmt: skip


def example_tensors(texts: Sequence[TensorText]) -> tuple[Any, ...]:
    """Tensors of these types and shapes: random numbers, zeros where they are whole."""
    made = []
    generator = torch.Generator().manual_seed(0)
    for one in texts:
        element = TORCH_TYPES[one.dtype]
        if one.dtype.is_float:
            made.append(torch.randn(one.shape, generator=generator).to(element))
        else:
            made.append(torch.zeros(one.shape, dtype=element))
    return tuple(made)


def as_inputs(examples: Any, file: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`example_inputs` of a module as arguments: a tensor, several, or a dict by name."""
    if isinstance(examples, torch.Tensor):
        return (examples,), {}
    if isinstance(examples, dict):
        return (), dict(examples)
    if isinstance(examples, list | tuple):
        return tuple(examples), {}
    kind = type(examples).__name__
    message = f"{file}: {EXAMPLE_INPUTS} is a {kind}: expected tensors in a tuple or a dict"
    raise UsageError(message, code=NOT_CAPTURED)
