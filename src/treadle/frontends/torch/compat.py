"""What differs between the versions of torch we run on (2.11 to 2.13), in one place."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException, exceptions_allowed_to_be_fallback
from torch.fx.experimental.symbolic_shapes import statically_known_true

FOR_DYNAMO = (TorchDynamoException, *exceptions_allowed_to_be_fallback)
"""What Dynamo itself knows how to go on from: trace again, skip, break the graph there."""
SYM_SQRT: Callable[..., Any] = torch._sym_sqrt  # type: ignore[attr-defined]
"""The root of a number that sizes decide."""
SET_EVAL_FRAME: Callable[[Any], Any] = torch._C._dynamo.eval_frame.set_eval_frame
"""Tells the interpreter whom to ask about new frames, None for nobody; gives who it was before."""
OVERLAPS = 1
"""torch's word for a tensor whose elements certainly share places."""
LATER = ("prims.fma.default",)
"""Overloads that are there only once torch has loaded its own compiler, as for optimizers."""
DISTRIBUTED = os.path.join(os.path.dirname(torch.__file__), "distributed", "")
"""Where torch keeps what sends tensors to other ranks, which are not the user's lines."""
SHOW_INPUTS = ("is_input", "alias_of_input")
"""What AOTAutograd calls results that are inputs or views of them."""


def symbol_range(shape_env: Any, symbol: Any) -> tuple[int | None, int | None]:
    """The least and the largest value torch promises for a size, None where it promises none."""
    ranges = getattr(shape_env, "var_to_range", None) or {}
    found = ranges.get(symbol)
    if found is None:
        return None, None
    return _finite(found.lower), _finite(found.upper)


def _finite(bound: Any) -> int | None:
    # torch writes "no bound" as a symbol for infinity, which is no Integer.
    if not getattr(bound, "is_Integer", isinstance(bound, int)):
        return None
    value = int(bound)
    return value if abs(value) < 2**62 else None


def symbol_hint(shape_env: Any, symbol: Any) -> int | None:
    """The value a size had when the graph was captured."""
    for name in ("backed_var_to_val", "var_to_val"):
        values = getattr(shape_env, name, None)
        if values is not None and symbol in values:
            value = values[symbol]
            return int(value) if getattr(value, "is_Integer", True) else None
    return None


def is_number(val: Any) -> bool:
    """Whether a SymInt stands for a number; those of nested tensors only stand for themselves."""
    return not val.node.is_nested_int()


def is_never_zero(n: Any) -> bool:
    """Whether a size is certainly not zero."""
    known: bool = statically_known_true(n > 0)
    return known


def is_contiguous(tensor: Any) -> bool:
    """Whether elements certainly lie row by row without gaps."""
    step: Any = 1
    for n, s in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if not (statically_known_true(s == step) or statically_known_true(n == 1)):
            return False
        step = step * n
    return True


def internal_overlap(tensor: Any) -> int:
    """Whether several elements lie in one place: 0 for no, OVERLAPS, or 2 if torch cannot tell."""
    own: Any = torch
    found: int = own._debug_has_internal_overlap(tensor)
    return found


def aot_compile(
    gm: Any,
    inputs: Sequence[Any],
    *,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inference: Callable[..., Any],
    decompositions: Any,
    partition: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """The graph through AOTAutograd: functional forward and backward graphs for our compilers."""
    from torch._dynamo.backends.common import aot_autograd

    whole = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions=decompositions,
        partition_fn=partition or min_cut,
        keep_inference_input_mutations=True,
    )
    # The minifier runs what it compiled while torch still takes times of the compilation, and
    # torch 2.13 cannot begin another one, of the backward graph, inside of that.
    is_minifying = getattr(torch._dynamo.config, "repro_after", None) == "dynamo"
    with backward_compiled_at_once() if is_minifying else nullcontext():
        compiled: Callable[..., Any] = whole(gm, inputs)
    # torch 2.13 marks it as taking one list, which it does not: the minifier would believe it.
    # Said of the function itself, for one more around it would cost every call two microseconds.
    compiled._boxed_call = False  # type: ignore[attr-defined]
    return compiled


def backward_compiled_at_once() -> AbstractContextManager[None]:
    """Backward graphs are compiled with their forward graphs, not when they are first needed."""
    config: Any = torch._functorch.config
    if not hasattr(config, "force_non_lazy_backward_lowering"):
        return nullcontext()
    patched: AbstractContextManager[None] = config.patch(force_non_lazy_backward_lowering=True)
    return patched


def min_cut(joint: Any, inputs: Any, **rest: Any) -> Any:
    """torch's division of a joint graph into forward and backward; same nodes stay as they are."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    config: Any = torch._functorch.config
    with config.patch(cse=False):  # capture/same_nodes.py has done it
        return min_cut_rematerialization_partition(joint, inputs, **rest)


def merges_same_nodes() -> bool:
    """Whether the user lets equal nodes be merged before a joint graph is divided."""
    config: Any = torch._functorch.config
    return bool(config.cse)


def have_recomputed(node: Any) -> None:
    """Have a node of a joint graph computed again by the backward, if that needs it."""
    from torch.utils.checkpoint import CheckpointPolicy

    node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def keeping(share: float) -> AbstractContextManager[None]:
    """The partitioner keeps at most this share of the activations it would keep by default."""
    config: Any = torch._functorch.config
    changes: dict[str, object] = {"activation_memory_budget": share}
    if hasattr(config, "unsafe_treat_script_objects_as_zero_size"):
        # Newer graphs hold process groups, whose memory torch would want to know.
        changes["unsafe_treat_script_objects_as_zero_size"] = True
    patched: AbstractContextManager[None] = config.patch(changes)
    return patched


@contextmanager
def inductor_code(texts: list[str]) -> Iterator[None]:
    """Collects the code that TorchInductor writes meanwhile, also what comes from its cache.

    Nothing is collected where this torch has no such hook.
    """
    from torch._inductor.graph import GraphLowering

    lowering: Any = GraphLowering
    if not hasattr(lowering, "save_output_code"):
        yield
        return
    before = lowering.save_output_code

    def save(text: str) -> None:
        texts.append(text)
        if before is not None:
            before(text)

    lowering.save_output_code = save
    try:
        yield
    finally:
        lowering.save_output_code = before


def fresh_function(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does the same and shares no compiled code with anybody."""

    def captured(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    # Dynamo keeps what it compiled with the code object, so each function gets one of its own.
    captured.__code__ = captured.__code__.replace(co_name=captured.__code__.co_name)
    return captured


def source_name(node: Any) -> str | None:
    """Dynamo's path to an input, `L['self']._modules['0']._parameters['weight']`."""
    name = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", None)
    found = name() if callable(name) else name  # a method until torch 2.11 or so
    return found if isinstance(found, str) else None


def floats_in_a_vector() -> int:
    """How many floats a vector of this machine holds, as torch found out; 0 if it does not say."""
    found: str = torch.backends.cpu.get_cpu_capability()
    return {"2": 8, "512": 16}.get(found.removeprefix("AVX"), 0)


@functools.cache
def library_is_narrower() -> bool:
    """Whether the library multiplies by vectors half as wide as the machine's.

    MKL does so on processors that are not Intel's.
    """
    backends: Any = torch.backends
    if floats_in_a_vector() != 16 or not backends.mkl.is_available():
        return False
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "vendor_id" in text and "GenuineIntel" not in text


@functools.cache
def multiplies_f16() -> bool:
    """Whether this processor has instructions for products of f16."""
    ask = getattr(torch.cpu, "get_capabilities", None)
    known: Any = ask() if ask is not None else {}
    return bool(known.get("avx512_fp16") or known.get("amx_fp16"))


@functools.cache
def second_cache() -> int:
    """Bytes in the second cache of a core, as Linux says; what most have had for long elsewhere."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        return int(text.removesuffix("K")) << 10
    except (OSError, ValueError):
        return 1 << 20


def not_compiled(function: Any) -> Any:
    """What was given to torch.compile, if something was; otherwise the function itself."""
    if isinstance(function, torch.nn.Module):
        return getattr(function, "_orig_mod", function)
    return getattr(function, "_torchdynamo_orig_callable", function)


def behind_wrappers(function: Any) -> Any:
    """What was compiled, behind functions that say what they wrap.

    AOTAutograd of torch 2.11 wraps a forward even where there is nothing to do besides.
    """
    found = not_compiled(function)
    while (inner := getattr(found, "__wrapped__", None)) is not None:
        found = inner
    return found


def attach(compiled: Any, name: str, value: Any, again: tuple[Any, ...]) -> None:
    """Give what torch.compile made an attribute.

    A module is pickled and copied by calling `again`, a function and its arguments: torch's own way
    would lose the attribute.
    """
    # Past a module's own `__setattr__`, which would hand it on to the model.
    object.__setattr__(compiled, name, value)
    if isinstance(compiled, torch.nn.Module):
        object.__setattr__(compiled, "__reduce_ex__", lambda protocol: again)


def mark_as_changing() -> Any:
    """What tells Dynamo that sizes of a tensor change; None if this torch says it otherwise."""
    from torch._functorch._aot_autograd import runtime_wrappers

    return getattr(runtime_wrappers, "mark_dynamo_propagated_dynamic_indices", None)


def giver_of_views() -> Any:
    """What makes of a result the view of an input that it is; None if this torch has none."""
    from torch._functorch._aot_autograd import runtime_wrappers

    return getattr(runtime_wrappers, "make_output_handler", None)


def hooks_are_in_graphs() -> bool:
    """Whether hooks on what is saved are graphs, which AOTAutograd makes part of its own."""
    from torch._functorch._aot_autograd import runtime_wrappers

    asked = getattr(runtime_wrappers, "_should_disable_saved_tensors_hooks", None)
    return asked is not None and bool(asked())


def skipped_by_dynamo(function: Any) -> None:
    """Have Dynamo leave the body of a function alone, wherever it is called."""
    torch._dynamo.eval_frame.skip_code(function.__code__)


def make_boxed(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function as taking one list of arguments, which it empties."""
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def donated_inputs() -> tuple[int, ...]:
    """Positions of inputs of the backward graph that nobody looks at afterwards."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    if getattr(metadata, "tokens", None):
        return ()  # torch counts wrongly where effects are ordered: results were among them
    found: Iterable[int] = getattr(metadata, "bw_donated_idxs", None) or ()
    return tuple(found)


def results_that_show_inputs() -> frozenset[int]:
    """Positions among a forward graph's results of those that are inputs, or views of them."""
    metadata = getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)
    first = getattr(metadata, "num_mutated_inp_runtime_indices", 0)
    found = enumerate(getattr(metadata, "output_info", ()), first)
    return frozenset([k for k, one in found if one.output_type.name in SHOW_INPUTS])


def artifact_log(name: str) -> logging.Logger | None:
    """The log behind `TORCH_LOGS=name`, for one of torch's own names; None unless it is on."""
    # A name below torch's: its handlers, `TORCH_LOGS_OUT` and `set_logs` then hold for us too.
    own: Any = torch._logging
    found: logging.Logger = own.getArtifactLogger("torch.treadle", name)
    is_on = found.propagate and found.isEnabledFor(logging.DEBUG)
    return found if is_on else None


def trace_artifact(name: str, encoding: str, payload: Callable[[], str]) -> None:
    """Add a file to the trace that `TORCH_TRACE` asks for; nothing is made without one."""
    own: Any = torch._logging
    own.trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": encoding},
        payload_fn=payload,
        expect_trace_id=False,
    )


def core_decompositions() -> dict[Any, Any]:
    """torch's own table for core ATen, as a new dict."""
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions())


def decompositions_of(operators: Iterable[Any]) -> dict[Any, Any]:
    """torch's decompositions of the given operators, of those that have one."""
    from torch._decomp import get_decompositions

    return dict(get_decompositions(list(operators)))


def register_backend(function: Callable[..., Any], name: str) -> None:
    """Make a backend known to Dynamo; harmless if the entry point did so already."""
    from torch._dynamo import list_backends
    from torch._dynamo import register_backend as register

    if name not in list_backends(exclude_tags=()):
        register(function, name=name)


def has_overload(name: str) -> bool:
    """Whether this torch has an overload called `name` (`aten.add.Tensor`)."""
    if name in LATER:
        return True
    library, packet, overload = name.split(".")
    found = getattr(getattr(torch.ops, library), packet, None)
    return found is not None and overload in found.overloads()


def sizes_of_one_allowed() -> AbstractContextManager[Any]:
    """While a model is exported: sizes that vary may be 0 and 1 too, where torch can do that."""
    from torch.fx.experimental import _config as config

    known: Any = config
    if not hasattr(known, "backed_size_oblivious"):
        return nullcontext()
    patched: AbstractContextManager[Any] = known.patch(backed_size_oblivious=True)
    return patched


def size_guards(exported: Any) -> list[str]:
    """What an exported program assumes about sizes, as Python on `L['x'].size()[0]`."""
    return list(getattr(exported, "_guards_code", None) or [])
