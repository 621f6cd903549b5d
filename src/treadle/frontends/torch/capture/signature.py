"""How a captured graph is called, written down for the host that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.core.errors import TreadleError
from treadle.frontends.torch.lowering.collectives import joined_call, part_call
from treadle.frontends.torch.lowering.graph import Lowered
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.frontends.torch.lowering.origins import Provenance
from treadle.frontends.torch.lowering.values import Opaque, Realised
from treadle.index import Expr
from treadle.ir.program import Collective, Program
from treadle.ir.run_error import RunError
from treadle.runtime.run_facts import Owner
from treadle.runtime.signature import (
    ConstantResult,
    ObjectResult,
    Result,
    Signature,
    SizeResult,
    TensorResult,
)


def signature_of(lowered: Lowered, owners: Mapping[str, Owner], program: Program) -> Signature:
    """The signature of a graph whose inputs lie in the memory of `owners`, as it was scheduled."""
    sent = [op for op in program.leaves if isinstance(op, Collective)]
    together = {op.name: joined_call(op, lowered.calls) for op in sent if op.sent_together}
    parts = {op.name: part_call(op, lowered.calls) for op in sent if op.part_of}
    return Signature(
        tensors=lowered.tensors,
        objects=lowered.objects,
        numbers=lowered.numbers,
        constants=lowered.constants,
        results=[_result(value) for value in lowered.outputs],
        mutated=lowered.mutated,
        calls={**lowered.calls, **together, **parts},
        owners=owners,
        is_inference=lowered.kind is GraphKind.INFERENCE,
    )


def _result(value: Any) -> Result:
    if isinstance(value, Realised):
        is_whole = value.layout == value.buffer.layout
        return TensorResult(value.buffer.name, value.layout, is_whole)
    if isinstance(value, Opaque):
        return ObjectResult(value.name)
    return SizeResult(value) if isinstance(value, Expr) else ConstantResult(value)


def blamed_places(provenance: Provenance, program: Program, error: TreadleError) -> list[str]:
    """The user's lines that an error of a run may speak of."""
    names = error.operations if isinstance(error, RunError) else ()
    places = provenance.blamed(error.code, names, program.by_name)
    if places:
        return places
    ops = [op for n in names if (op := program.op_by_name.get(n)) is not None]
    found = [provenance.of(op.name, op.origins) for op in ops]
    return list(dict.fromkeys(s.place for s in found if s is not None and s.place))
