"""A model ahead of time: captured by torch.export, lowered, compiled, written as a package.

    treadle.torch.package(model, (x,), "model.treadle", dynamic={"x": {0: "batch"}})

Parameters and buffers become weights; buffers that the model changes are kept between runs, as the
model keeps them. What would have to go back to Python is refused before anything is written.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from treadle.codegen.c.unit import write_unit
from treadle.codegen.lower import lower
from treadle.codegen.package_c.tables import Constraint
from treadle.codegen.package_c.words import as_identifier
from treadle.core.errors import TreadleError, UsageError
from treadle.core.options import Options
from treadle.frontends.torch import compat
from treadle.frontends.torch.capture.compile import Scheduled, schedule
from treadle.frontends.torch.capture.decompositions import decompositions
from treadle.frontends.torch.capture.export import (
    Dimension,
    Dynamic,
    captured_program,
    not_exported,
    quietly,
)
from treadle.frontends.torch.capture.guard_text import read_guards
from treadle.frontends.torch.capture.own_steps import OwnSteps
from treadle.frontends.torch.capture.signature import signature_of
from treadle.frontends.torch.lowering.graph import Lowered, lower_graph
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.frontends.torch.lowering.merge_products import merge_products
from treadle.frontends.torch.lowering.origins import own_line
from treadle.frontends.torch.lowering.readers import shape_env_of
from treadle.frontends.torch.lowering.symbols import GraphSizes
from treadle.frontends.torch.lowering.values import NotLowered
from treadle.index import Expr, Symbol
from treadle.ir.numerics import EXACT
from treadle.runtime.hosts.torch_c_package import calls_in_c, refusal
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.packages.pack import (
    REFUSED,
    NamedResult,
    NamedStorage,
    Packing,
    PackRequest,
)
from treadle.runtime.packages.write import SUFFIX, Contents, refuse_to_replace, write_package
from treadle.runtime.plan_launches import plan_launches
from treadle.runtime.signature import Signature, TensorResult

PLAIN = (bool, int, float, str, type(None))
RELATIONS = {
    "Equality": "==", "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<=",
    "StrictGreaterThan": ">", "GreaterThan": ">=",
}  # fmt: skip
"""Relations of SymPy, by class, in C."""


def package(
    model: Any,
    args: Sequence[Any],
    path: str | os.PathLike[str] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic: Dynamic | None = None,
    name: str | None = None,
    weights: str = "file",
    portable: bool = False,
    force: bool = False,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Compile a model, or what torch.export made of one, and write it as a package; gives the path.

    `path` is a folder, or one file if it ends in `.zip`. `weights` is "file", or "names" if whoever
    loads it gives them. `portable`: for any processor of this kind rather than one like this.
    """
    word = as_identifier(name or _name_of(model))
    where = os.fspath(path) if path is not None else word + SUFFIX
    if weights not in ("file", "names"):
        raise UsageError(f"weights can be 'file' or 'names', not {weights!r}", code="OPT002")
    refuse_to_replace(where, force)
    settings = Options.from_env().with_(**(options or {}))
    contents = _contents(model, tuple(args), dict(kwargs or {}), dynamic or {}, word, settings)
    if weights == "names":
        contents = replace(contents, read_weight=None)
    contents = replace(contents, is_portable=portable)
    return write_package(contents, where, settings, force)


def _contents(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic: Dynamic,
    name: str,
    settings: Options,
) -> Contents:
    """What goes into the package; for sizes from 0 on if that is possible, else from 2 on."""
    try:
        return ExportedModel(model, args, kwargs, dynamic).contents(name, settings)
    except UsageError as e:
        if not dynamic or e.code != REFUSED:
            raise
        with contextlib.suppress(UsageError):
            return ExportedModel(model, args, kwargs, dynamic, from_two=True).contents(
                name, settings
            )
        raise


def _name_of(model: Any) -> str:
    if isinstance(model, torch.export.ExportedProgram):
        return "model"
    found = getattr(model, "__name__", None) or type(model).__name__
    return str(found)


class LoweredModel(NamedTuple):
    """A model as a program, before and after all passes."""

    lowered: Lowered
    scheduled: Scheduled


class ExportedModel:
    """A captured model on its way into a package."""

    def __init__(
        self,
        model: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dynamic: Dynamic,
        from_two: bool = False,
    ) -> None:
        """`from_two`: sizes that vary are never 0 or 1, which torch knows how to use."""
        if isinstance(model, torch.export.ExportedProgram):
            if dynamic:
                message = "a program of torch.export has its dynamic sizes already"
                raise UsageError(message, code="OPT002")
            self.dims: dict[str, dict[int, Dimension]] = {}
            captured = model
        else:
            captured, self.dims = captured_program(model, args, kwargs, dynamic, from_two)
        allowed = contextlib.nullcontext() if from_two else compat.sizes_of_one_allowed()
        with quietly(), torch.no_grad(), allowed:
            try:
                self.program = captured.run_decompositions(decompositions(OwnSteps(), False))
            except TreadleError:
                raise
            except Exception as e:
                raise (_sharing_buffers(captured) or not_exported(e)) from e
        self.gm = self.program.graph_module
        self.signature = self.program.graph_signature
        self.guards = compat.size_guards(captured)
        self.sizes = GraphSizes(shape_env_of(self.gm))

    def contents(self, name: str, options: Options) -> Contents:
        """Everything that goes into the package."""
        result = self._result_tree()
        weights = dict(self._weights())
        made = self.lowered(options, weights)
        host = lower(made.scheduled.kernels)
        unit = write_unit(host)
        signature = signature_of(made.lowered, {}, made.scheduled.program)
        shape = LaunchShape(host, signature.facts)
        plan = plan_launches(shape)
        calls = calls_in_c(shape, plan, signature, self._place_of)
        request = self._request(name, made.lowered, signature, list(self._constraints()))
        graph = Packing(shape, unit.storages, request, calls).packed()
        held = {**weights, **_constants(made.lowered)}
        rows = [held[one.name] for one in graph.weights]
        return Contents(graph, unit, plan, result, lambda k: _bytes_of(rows[k]))

    def lowered(self, options: Options, weights: Mapping[str, Any]) -> LoweredModel:
        """The graph as a program, and the program after all passes."""
        _refuse_devices(self.gm, weights.values())
        _refuse_shared_state(weights, self._write_back_changes())
        if options.numerics != "exact":
            merge_products(self.gm)
        found = self._lowered()
        if options.numerics == "exact":
            found.program = replace(found.program, numerics=EXACT)
        return LoweredModel(found, schedule(found.program, options))

    # -- the captured program --------------------------------------------------------------
    def _weights(self) -> Iterator[tuple[str, Any]]:
        """Parameters, buffers and constants by name, as tensors."""
        held = {**self.program.state_dict, **self.program.constants}
        for spec in self.signature.input_specs:
            if spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                yield str(spec.target), held[spec.target]
            elif spec.kind.name == "TOKEN":
                raise self._effects()
            elif spec.kind.name != "USER_INPUT":
                what = spec.kind.name.lower().replace("_", " ")
                raise UsageError(
                    f"the model holds a {what} ('{spec.target}'), which needs Python", code=REFUSED
                )

    def _effects(self) -> UsageError:
        """The refusal of operators that torch keeps in order because they do more than compute."""
        found = [
            (str(node.args[1]), own_line(node) or "", "it does more than compute a result")
            for node in self.gm.graph.nodes
            if getattr(node.target, "__name__", "") == "with_effects"
        ]
        return refusal(found)

    def _write_back_changes(self) -> frozenset[str]:
        """What the model changes is written back by the graph itself; gives the placeholders."""
        graph = self.gm.graph
        output = next(node for node in graph.nodes if node.op == "output")
        nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
        of_target = {s.target: s.arg.name for s in self.signature.input_specs if s.target}
        kept, changed = [], set()
        for spec, value in zip(self.signature.output_specs, output.args[0], strict=True):
            kind = spec.kind.name
            if kind == "USER_OUTPUT":
                kept.append(value)
                continue
            if kind not in ("BUFFER_MUTATION", "USER_INPUT_MUTATION"):
                what = kind.lower().replace("_", " ")
                raise UsageError(f"the model gives a {what}, which needs Python", code=REFUSED)
            name = spec.target if kind == "USER_INPUT_MUTATION" else of_target[spec.target]
            changed.add(name)
            with graph.inserting_before(output):
                node = graph.call_function(torch.ops.aten.copy_.default, (nodes[name], value))
                node.meta["val"] = nodes[name].meta["val"]
                node.meta["stack_trace"] = value.meta.get("stack_trace")
        output.args = (tuple(kept),)
        graph.lint()
        self.gm.recompile()
        return frozenset(changed)

    def _lowered(self) -> Lowered:
        try:
            lowered = lower_graph(self.gm, GraphKind.INFERENCE)
        except NotLowered as e:
            raise UsageError(f"the model cannot be lowered: {e}", code=REFUSED) from None
        if lowered.numbers:
            raise UsageError(
                "the model takes numbers that vary: packages take tensors", code=REFUSED
            )
        constants = {
            s.arg.name
            for s in self.signature.input_specs
            if type(s.arg).__name__ == "ConstantArgument"
        }
        nodes = [node for node in self.gm.graph.nodes if node.op == "placeholder"]
        for position, _ in lowered.objects:
            node = nodes[position]
            if node.name not in constants:
                kind = type(node.meta.get("val")).__name__
                message = f"input '{node.name}' is a {kind}: packages take plain CPU tensors"
                raise UsageError(message, code=REFUSED)
        return lowered

    def _constraints(self) -> Iterator[Constraint]:
        """What torch assumed about sizes while it captured the model."""
        env = shape_env_of(self.gm)
        if env is None:
            return
        for guard in env.guards:
            yield from self._relations(env.replace(guard.expr))
        if not env.guards:  # a program that was saved and loaded has them as text
            yield from read_guards(self.guards, self._shape_of)
        for first, *rest in self._same_names().values():
            yield from [Constraint(first, "==", other) for other in rest if other is not first]

    def _relations(self, e: Any) -> Iterator[Constraint]:
        """What a condition of torch's says, relation by relation."""
        kind = type(e).__name__
        if kind == "And":
            for part in e.args:
                yield from self._relations(part)
        elif kind in RELATIONS:
            try:
                left, right = self.sizes.of_sympy(e.lhs), self.sizes.of_sympy(e.rhs)
            except NotLowered as error:
                message = f"what torch assumed about sizes cannot be checked: {error}"
                raise UsageError(message, code=REFUSED) from None
            yield Constraint(left, RELATIONS[kind], right)
        elif kind != "BooleanTrue":
            message = f"what torch assumed about sizes is not a relation: {e}"
            raise UsageError(message, code=REFUSED)

    def _shape_of(self, name: str) -> tuple[Expr, ...] | None:
        """The sizes of an input, by its name."""
        for node in self.gm.graph.nodes:
            if node.op == "placeholder" and node.name == name:
                val = node.meta.get("val")
                return self.sizes.exprs(val.shape) if isinstance(val, torch.Tensor) else None
        return None

    def _same_names(self) -> dict[str, list[Any]]:
        """The sizes that the user called by one name."""
        found: dict[str, list[Any]] = {}
        for name, _, symbol in self._named_dims():
            found.setdefault(name, []).append(symbol)
        return found

    def _size_names(self) -> dict[str, str]:
        """What people call sizes; of several that have one name, others say whose they are."""
        found: dict[str, str] = {}
        for name, of, symbol in self._named_dims():
            if isinstance(symbol, Symbol) and symbol.name not in found:
                found[symbol.name] = f"{name}_{of}" if name in found.values() else name
        return found

    def _named_dims(self) -> Iterator[tuple[str, str, Expr]]:
        """(name, input, size) of every dimension that the user gave a name."""
        for node in self.gm.graph.nodes:
            if node.op == "placeholder" and node.name in self.dims:
                shape = self.sizes.exprs(node.meta["val"].shape)
                for dim, about in self.dims[node.name].items():
                    yield about.name, node.name, shape[dim]

    def _place_of(self, operation: str) -> str:
        """The user's line behind an operation."""
        nodes = {node.name: node for node in self.gm.graph.nodes}
        node = nodes.get(operation)
        return (own_line(node) or "") if node is not None else ""

    # -- what is asked for -----------------------------------------------------------------
    def _request(
        self,
        name: str,
        lowered: Lowered,
        signature: Signature,
        constraints: Sequence[Constraint],
    ) -> PackRequest:
        specs = self.signature.input_specs
        inputs, held = [], []
        for position, storage in lowered.tensors:
            spec = specs[position]
            if spec.kind.name == "USER_INPUT":
                inputs.append(NamedStorage(spec.arg.name, storage))
            else:
                held.append(NamedStorage(str(spec.target), storage))
        held += [NamedStorage(f"constant.{n}", n) for n in lowered.constants]
        results = [
            NamedResult(f"result{k}", r.storage, r.layout)
            for k, r in enumerate(r for r in signature.results if isinstance(r, TensorResult))
        ]
        shown = self._size_names()
        version = ".".join(torch.__version__.split(".")[:2])
        return PackRequest(
            name, inputs, held, results, lowered.mutated, shown, constraints, version
        )

    def _result_tree(self) -> dict[str, Any]:
        """How the results are arranged; tensors are numbered in order."""
        numbers: list[Any] = []
        output = next(node for node in self.gm.graph.nodes if node.op == "output")
        specs = zip(self.signature.output_specs, output.args[0], strict=True)
        for spec, value in specs:
            if spec.kind.name == "USER_OUTPUT":
                numbers.append(value)
        leaves: list[dict[str, Any]] = []
        count = 0
        for value in numbers:
            if isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor):
                leaves.append({"output": count})
                count += 1
            elif isinstance(value, PLAIN):
                leaves.append({"value": value})
            else:
                raise UsageError(
                    "the model gives a number that depends on sizes: packages give tensors",
                    code=REFUSED,
                )
        return _tree(self.program.call_spec.out_spec, iter(leaves))


def _tree(spec: Any, leaves: Iterator[dict[str, Any]]) -> dict[str, Any]:
    if spec.is_leaf():
        return next(leaves)
    inside = [_tree(child, leaves) for child in spec.children()]
    if spec.type is dict or getattr(spec.type, "__name__", "") == "OrderedDict":
        if not all(isinstance(key, str) for key in spec.context):
            raise UsageError("the model gives a dict whose keys are not text", code=REFUSED)
        return {"dict": [list(pair) for pair in zip(spec.context, inside, strict=True)]}
    if spec.type is list:
        return {"list": inside}
    if spec.type is tuple:
        return {"tuple": inside}
    if issubclass(spec.type, tuple):
        return {"tuple": inside}  # one with names is still a tuple
    raise UsageError(f"the model gives a {spec.type.__name__}: packages give tensors", code=REFUSED)


# ------------------------------------------------------------------------------- weights


def _refuse_devices(gm: Any, weights: Any) -> None:
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        for one in val if isinstance(val, list | tuple) else [val]:
            if isinstance(one, torch.Tensor) and one.device.type not in ("cpu", "meta"):
                message = f"the model is on {one.device}: packages run on the CPU"
                raise UsageError(message, code=REFUSED)
    for one in weights:
        if not isinstance(one, torch.Tensor) or one.layout is not torch.strided:
            raise UsageError("the model holds a weight that is no plain tensor", code=REFUSED)
        if one.is_quantized or one.device.type != "cpu":
            raise UsageError("the model holds a weight that is no plain CPU tensor", code=REFUSED)


def _refuse_shared_state(weights: Mapping[str, Any], changed: frozenset[str]) -> None:
    """A buffer that changes must not be a view of memory that another weight shows, too."""
    if not changed:
        return
    owners: dict[int, list[str]] = {}
    for name, one in weights.items():
        if one.numel():
            owners.setdefault(one.untyped_storage().data_ptr(), []).append(name)
    for names in owners.values():
        if len(names) > 1 and any(_placeholder(name) in changed for name in names):
            shared = " and ".join(names[:2])
            message = f"the model changes a buffer that shares memory: {shared}"
            raise UsageError(message, code=REFUSED)


def _sharing_buffers(captured: Any) -> UsageError | None:
    """What is wrong with a program whose buffers lie in each other, if any do.

    torch fails on changes to such buffers with words that nobody understands.
    """
    owners: dict[int, tuple[str, Any]] = {}
    for name, one in captured.named_buffers():
        if one.layout is torch.strided and one.numel():
            at = one.untyped_storage().data_ptr()
            other, same = owners.setdefault(at, (name, one))
            if same is not one:
                message = f"the model changes a buffer that shares memory: {other} and {name}"
                return UsageError(message, code=REFUSED)
    return None


def _placeholder(target: str) -> str:
    return "b_" + target.replace(".", "_")


def _constants(lowered: Lowered) -> dict[str, Any]:
    return {f"constant.{name}": held for name, held in lowered.constants.items()}


def _bytes_of(tensor: Any) -> bytes:
    """A tensor's memory from its first to its last element, as it lies."""
    whole = tensor.detach()
    if whole.numel() == 0:
        return b""
    last = sum((n - 1) * s for n, s in zip(whole.shape, whole.stride(), strict=True))
    return ctypes.string_at(whole.data_ptr(), (last + 1) * whole.element_size())
