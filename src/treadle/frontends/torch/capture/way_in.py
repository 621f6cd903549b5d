"""The way from Dynamo into compiled graphs and back, as short as it can be.

AOTAutograd puts several layers of Python around what was compiled: they regenerate views, apply
changes to inputs, unwrap subclasses, order effects. Most graphs need none of that, and a step of a
small model then spends more time there than in its kernels. Here such graphs are entered directly.

Nothing is guessed. The first calls go the way AOTAutograd made, and what its own description of
the graph says decides whether there is a shorter one (`why_not_plain`). Nodes in the autograd graph
keep AOTAutograd's form: a node made by the short way can be carried out by the long one, and is
whenever something unusual is asked of it (a second derivative, a graph that is retained, compiled
autograd).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import Function

from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.runtime.hosts.torch_cpu import Runner
from treadle.runtime.signature import ConstantResult

PLAIN = (torch.Tensor, torch.nn.Parameter, int, float, bool, type(None))
"""What a graph may be given and may give if nothing has to be unwrapped."""
PLAIN_RESULTS = frozenset({"non_alias"})
GIVEN_RESULTS = PLAIN_RESULTS | {"alias_of_input", "is_input"}
"""Results that a graph without gradients may have: inputs and views of them are made as such."""
MOST_LOOKS = 8
"""After how many calls without an answer the long way is taken for good."""

Whole = Callable[..., Sequence[Any]]


@dataclass
class Entered:
    """What was compiled of one captured graph, as far as calls begin there."""

    forward: Any = None
    inference: Any = None
    """A graph without gradients."""
    metadata: Any = None
    """What AOTAutograd says about it."""

    def note(self, kind: GraphKind, compiled: Any) -> None:
        """Remember what was compiled, and what AOTAutograd says about it at this moment."""
        if kind is GraphKind.FORWARD:
            self.forward = compiled
        elif kind is GraphKind.INFERENCE:
            self.inference = compiled
            self.metadata = getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)


def shortened(whole: Whole, entered: Entered) -> Whole:
    """The same function, which finds a shorter way to what was compiled after its first calls."""
    if _any_autocast():
        return whole  # compiled graphs then run with autocast off: the long way sees to it
    if compat.hooks_are_in_graphs():
        return whole  # they must not be called once more when something is saved
    direct: Whole | None = None
    looks = 0

    def enter(*args: Any) -> Sequence[Any]:
        nonlocal direct, looks
        if direct is not None:
            return direct(*args)
        results = whole(*args)
        looks += 1
        if looks > MOST_LOOKS:
            direct = whole
        elif all(type(x) in PLAIN for x in (*args, *results)):
            try:
                direct = _direct(whole, entered, len(args), results)
            except AttributeError:  # a torch that keeps what we ask for elsewhere
                direct = whole
        else:
            direct = whole
        return results

    enter.__dict__.update(vars(whole))  # torch's minifier asks it for parameters
    return enter


def _direct(whole: Whole, entered: Entered, arguments: int, results: Sequence[Any]) -> Whole | None:
    """The shorter way, the long one if there is none, None if that cannot be said yet."""
    if entered.inference is not None:
        if why_not_plain(entered.metadata, arguments, is_trained=False):
            return whole
        return _without_gradients(entered.inference, entered.metadata)
    # A result may also be an input that another compiled graph has made.
    found = [(f, compat.behind_wrappers(f.compiled_fw)) for f in _functions_behind(results)]
    ours = [f for f, forward in found if forward is entered.forward]
    if not ours:
        return None
    long = ours[0]
    if why_not_plain(long.metadata, arguments, is_trained=True) or long.maybe_subclass_metadata:
        return whole
    backward = compat.behind_wrappers(getattr(long, "compiled_bw", None))
    if backward is None:
        return None  # compiled when it is first needed
    if not isinstance(backward, Runner) or not isinstance(entered.forward, Runner):
        return whole
    detached = _without_gradient(long.metadata, backward)
    short = _short_function(long, entered.forward, backward)
    return _with_gradients(whole, long.metadata, detached, short)


def why_not_plain(metadata: Any, arguments: int, *, is_trained: bool) -> str | None:
    """What AOTAutograd would have to do besides running what was compiled; None for nothing."""
    return next(_besides(metadata, arguments, is_trained), None)


def _besides(metadata: Any, arguments: int, is_trained: bool) -> Iterator[str]:
    config: Any = torch._functorch.config
    if metadata is None:
        yield "no description"
    elif len(metadata.input_info) != arguments:
        yield "inputs that are one and the same, or views of one tensor"
    elif metadata.num_mutated_inp_runtime_indices:
        yield "inputs that are changed after the graph has run"
    elif metadata.num_intermediate_bases or metadata.grad_enabled_mutation is not None:
        yield "views of what the graph made; a grad mode that it leaves behind"
    elif not _kinds(metadata) <= (PLAIN_RESULTS if is_trained else GIVEN_RESULTS):
        yield "results that are views"
    elif _kinds(metadata) != PLAIN_RESULTS and compat.giver_of_views() is None:
        yield "results that are views, which this torch makes in another way"
    elif metadata.tokens or metadata.num_backward_tokens or metadata.is_rng_op_functionalized:
        yield "effects in order, states of random numbers"
    elif metadata.num_graphsafe_rng_states or config.debug_assert:
        yield "states of random numbers, checks"
    elif is_trained and metadata.indices_of_inputs_that_requires_grad_with_mutations_in_bw:
        yield "inputs that are changed in the backward"
    elif is_trained and getattr(metadata, "num_opaque_objects_saved_for_bw", None):
        yield "objects kept for the backward"
    elif (_marks(metadata) or _marks_of_kept(metadata)) and compat.mark_as_changing() is None:
        yield "tensors to be marked as of changing size"


def _kinds(metadata: Any) -> frozenset[str]:
    """What results are to what the graph was given."""
    return PLAIN_RESULTS | {one.output_type.name for one in metadata.output_info}


def _marks(metadata: Any) -> list[tuple[int, Any]]:
    """Results of which Dynamo is to know that some of their sizes change: position and axes."""
    found = [(k, one.dynamic_dims) for k, one in enumerate(metadata.output_info)]
    return [(k, axes) for k, axes in found if axes]


def _marks_of_kept(metadata: Any) -> list[tuple[int, Any]]:
    """The same of what is kept for the backward."""
    return list(getattr(metadata, "dynamic_saved_tensors_idxs", {}).items())


def _changed(metadata: Any) -> tuple[int, ...]:
    """Positions of inputs that the graph itself changes, which autograd counts."""
    return tuple(metadata.mutated_graph_handled_indices_seen_by_autograd)


def _any_autocast() -> bool:
    own: Any = torch._C
    found: bool = own._is_any_autocast_enabled()
    return found


# ---------------------------------------------------------------------------- without gradients


def _without_gradients(runner: Callable[[list[Any]], Sequence[Any]], metadata: Any) -> Whole:
    own: Any = torch._C
    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, own._set_grad_enabled
    count = torch.autograd.graph.increment_version
    changed, marks, mark = _changed(metadata), _marks(metadata), compat.mark_as_changing()
    views = _views(metadata)

    def direct(*args: Any) -> Sequence[Any]:
        if changed:
            count([args[k] for k in changed])
        # Inputs may want gradients that no result has.
        before = is_grad_enabled()
        if before:
            set_grad_enabled(False)
        try:
            results = runner(list(args))
        finally:
            if before:
                set_grad_enabled(True)
        if views:
            made = list(results)
            for k, view_of in views:
                made[k] = view_of(args, results, results[k])
            results = made
        for k, axes in marks:
            mark(results[k], axes)
        return results

    return direct


def _views(metadata: Any) -> list[tuple[int, Any]]:
    """Results that are inputs or views of inputs, and what makes them so."""
    make = compat.giver_of_views()
    return [
        (k, make(one, metadata, False))
        for k, one in enumerate(metadata.output_info)
        if one.output_type.name not in PLAIN_RESULTS
    ]


# ------------------------------------------------------------------------------- with gradients


def _functions_behind(results: Sequence[Any]) -> Iterator[Any]:
    """AOTAutograd's function, as the node behind its results knows it."""
    for one in results:
        node = getattr(one, "grad_fn", None)
        found = getattr(type(node), "_forward_cls", None)
        if hasattr(found, "_aot_id"):
            yield found


def _with_gradients(
    whole: Whole, metadata: Any, detached: Sequence[int], short: type[Function]
) -> Whole:
    is_grad_enabled, count = torch.is_grad_enabled, torch.autograd.graph.increment_version
    changed, marks, mark = _changed(metadata), _marks(metadata), compat.mark_as_changing()
    apply: Whole = short.apply

    def direct(*args: Any) -> Sequence[Any]:
        if not is_grad_enabled():
            return whole(*args)
        if changed:
            count([args[k] for k in changed])
        if detached:
            given = list(args)
            for k in detached:
                given[k] = given[k].detach()
            args = tuple(given)
        results = apply(*args)
        for k, axes in marks:
            mark(results[k], axes)
        return results

    return direct


def _without_gradient(metadata: Any, backward: Runner) -> tuple[int, ...]:
    """Positions of inputs made by other operations that get no gradient from this graph.

    They are detached, or autograd would walk back into those operations with nothing.
    """
    return tuple(
        [
            k
            for k, (info, result) in enumerate(
                zip(metadata.input_info, backward.signature.results, strict=True)
            )
            if info.requires_grad and not info.is_leaf and _is_nothing(result)
        ]
    )


def _is_nothing(result: Any) -> bool:
    return isinstance(result, ConstantResult) and result.value is None


@dataclass(frozen=True)
class Kept:
    """Where AOTAutograd wants the results of a forward graph to go."""

    results: int
    """How many there are for the user, at the front."""
    constant: tuple[int, ...]
    """Those that have no gradient."""
    watched: slice
    """What is kept for the backward and must not change until then."""
    unwatched: slice
    numbers: slice

    @classmethod
    def by(cls, metadata: Any) -> Kept:
        """As AOTAutograd describes the graph."""
        tensors = [
            k
            for k, one in enumerate(metadata.output_info)
            if issubclass(one.raw_type, torch.Tensor) and not one.requires_grad
        ]
        watched = getattr(metadata, "tensors_saved_for_backwards_with_vc_check_slice", None)
        if watched is None:  # a torch that watches all
            watched, unwatched = metadata.tensors_saved_for_backwards_slice, slice(0, 0)
        else:
            unwatched = metadata.tensors_saved_for_backwards_no_vc_check_slice
        return cls(
            len(metadata.output_info),
            tuple(tensors),
            watched,
            unwatched,
            metadata.symints_saved_for_backwards_slice,
        )


def _short_function(long: Any, run_forward: Runner, run_backward: Runner) -> type[Function]:
    """AOTAutograd's function with as little as possible around what was compiled."""
    kept = Kept.by(long.metadata)
    wanted, formats = _tangents(long.metadata)
    is_boxed = getattr(long, "boxed_grads_call", False)
    marks, mark = _marks_of_kept(long.metadata), compat.mark_as_changing()
    is_unusual, set_eval_frame = _unusual(long.metadata), compat.SET_EVAL_FRAME
    own: Any = torch._C
    is_in_thread, get_from_thread = own._is_key_in_tls, own._get_obj_in_tls

    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        found = run_forward(list(args))
        # A view would keep its base, and what made it.
        watched = [x.detach() if x._is_view() else x for x in found[kept.watched]]
        unwatched = [x.detach() if x._is_view() else x for x in found[kept.unwatched]]
        for k, axes in marks:
            mark((*watched, *unwatched)[k], axes)
        ctx.save_for_backward(*watched)
        ctx._tensors_no_vc_check = unwatched
        ctx.symints, ctx.opaque_objects = found[kept.numbers], []
        ctx.mark_non_differentiable(*[found[k] for k in kept.constant])
        ctx._materialize_non_diff_grads = False
        return tuple(found[: kept.results])

    def backward(ctx: Any, *given: Any) -> Any:
        gradients: Any = given[0] if is_boxed else given
        taken = [gradients[k] for k in wanted]
        if is_unusual() or not all(type(x) is torch.Tensor for x in taken):
            return long.backward(ctx, *given)
        if is_boxed:
            gradients.clear()  # so that they can die as soon as they were used
        args = [*ctx.symints, *ctx.saved_tensors, *ctx._tensors_no_vc_check]
        args += map(_as_compiled_for, taken, formats)
        del taken
        ctx.maybe_clear_saved_tensors()
        # Who called `backward` has context variables, which other threads do not see.
        around = get_from_thread("context") if is_in_thread("context") else None
        before = set_eval_frame(None)
        try:
            return tuple(run_backward(args) if around is None else around.run(run_backward, args))
        finally:
            set_eval_frame(before)

    # Dynamo may be at work around us, where a user compiles what calls `backward`.
    compat.skipped_by_dynamo(backward)
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    kind: Any = type(long)  # torch's own, which makes the class of the nodes
    short: type[Function] = kind(long.__name__, (long,), members)
    return short


def _tangents(metadata: Any) -> tuple[list[int], list[Any]]:
    """Which gradients of results a backward graph takes, and how each shall lie in memory."""
    wanted = [
        k
        for k, one in enumerate(metadata.output_info)
        if issubclass(one.raw_type, torch.Tensor)
        and getattr(one, "requires_grad_for_backward", one.requires_grad)
    ]
    return wanted, [one.memory_format for one in metadata.subclass_tangent_meta]


def _as_compiled_for(gradient: Any, form: Any) -> Any:
    """A gradient that lies in memory as the backward graph was compiled for."""
    if form.memory_format is not None:
        if gradient.is_contiguous(memory_format=form.memory_format):
            return gradient
        return gradient.contiguous(memory_format=form.memory_format)
    if gradient.shape == form.size and gradient.stride() == form.stride:
        return gradient
    placed = torch.empty_strided(
        form.size, form.stride, dtype=gradient.dtype, device=gradient.device
    )
    return placed.copy_(gradient)


def _unusual(metadata: Any) -> Callable[[], bool]:
    """Whether more is asked of a backward run than its gradients, once."""
    own: Any = torch._C
    is_grad_enabled = torch.is_grad_enabled
    keeps_graph = own._autograd._get_current_graph_task_keep_graph
    transforms = own._functorch.peek_interpreter_stack
    is_deterministic = torch.are_deterministic_algorithms_enabled
    is_bound_to_order = metadata.deterministic is True

    def is_unusual() -> bool:
        return (
            is_grad_enabled()
            or keeps_graph()
            or transforms() is not None
            or (is_deterministic() and not is_bound_to_order)
        )

    return is_unusual
