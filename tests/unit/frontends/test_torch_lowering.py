"""How captured graphs become programs: what is written into one loop, what is a view, a call."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings, compile_graph  # noqa: E402
from treadle.frontends.torch.lowering import registry  # noqa: E402
from treadle.frontends.torch.lowering.graph import Lowered, lower_graph  # noqa: E402
from treadle.frontends.torch.lowering.graph_kind import GraphKind  # noqa: E402
from treadle.frontends.torch.lowering.origins import Provenance  # noqa: E402
from treadle.frontends.torch.lowering.reshaping import DimensionGroup, grouped, view_strides  # noqa: E402
from treadle.frontends.torch.lowering.symbols import GraphSizes  # noqa: E402
from treadle.frontends.torch.lowering.values import NotLowered  # noqa: E402
from treadle.index import Const, size  # noqa: E402
from treadle.ir.numerics import EXACT, TORCH, Numerics  # noqa: E402
from treadle.ir.program import Extern, Loop  # noqa: E402
from treadle.ir.spec import verify  # noqa: E402
from treadle.ir.types import Layout  # noqa: E402

pytestmark = pytest.mark.torch


def lowered(function: Any, *inputs: Any) -> Lowered:
    """The program of a function of tensors, verified."""
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    result = lower_graph(gm)
    verify(result.program)
    return result


def test_what_is_made_for_a_call_says_for_which_node() -> None:
    def function(x: Any, w: Any) -> Any:
        return (x.t() * 2) @ w

    gm = make_fx(function, tracing_mode="fake")(torch.randn(4, 3), torch.randn(4, 2))
    result = lower_graph(gm)
    names = {node.name for node in gm.graph.nodes}
    provenance = Provenance(gm.graph, made_for=result.made_for)
    for buffer in result.program.buffers:
        if buffer.name not in result.program.inputs:
            assert result.made_for.get(buffer.name, buffer.name) in names
            assert provenance.of(buffer.name) is not None


def kinds(result: Lowered) -> list[str]:
    return [type(op).__name__ for op in result.program.ops]


def test_a_chain_of_cheap_operators_is_one_loop() -> None:
    result = lowered(lambda x: ((x + 1) * 2).exp() - x, torch.randn(3, 4))
    assert kinds(result) == ["Loop"]
    assert result.fallbacks == []


@pytest.mark.parametrize("options, numerics", [({}, TORCH), ({"numerics": "exact"}, EXACT)])
def test_a_graph_says_how_exact_torch_is_unless_asked_to_be_exact(
    options: dict[str, Any], numerics: Numerics
) -> None:
    gm = make_fx(lambda x: x.exp() + 1, tracing_mode="fake")(torch.randn(3))
    seen: list[Lowered] = []
    compile_graph(
        gm, GraphKind.INFERENCE, Settings(Options(**options), strict=True, observe=seen.append)
    )
    assert [one.program.numerics for one in seen] == [numerics]


def test_angles_that_every_head_turns_by_are_computed_once() -> None:
    def rotary(x: Any) -> Any:
        speeds = 10_000.0 ** (-torch.arange(0, 16, 2) / 16)
        angles = torch.outer(torch.arange(32).float(), speeds)
        return x * angles.cos() + angles.sin()

    heads, one = torch.randn(4, 32, 8), torch.randn(32, 8)
    loops = {op.name: op for op in lowered(rotary, heads).program.ops if isinstance(op, Loop)}
    assert set(loops) == {"pow_1", "cos", "sin", "add"}
    work = [at.stmt.op for at in loops["add"].body.walk()]
    assert not {"pow", "cos", "sin"} & set(work)
    # Where everyone asks for an element but once there is nothing to keep.
    once = lowered(lambda x: x * torch.arange(8.0).sin(), torch.randn(8))
    assert kinds(once) == ["Loop"]
    assert kinds(lowered(rotary, one)) == ["Loop", "Loop"]  # the powers, and all else
    joined = lowered(lambda x: torch.cat([x.tanh(), x, x, x]), torch.randn(1, 8))
    assert [op.name for op in joined.program.ops if "tanh" in op.name] == []


def test_a_logarithm_that_whole_lines_are_taken_from_is_computed_once() -> None:
    """A loop around the line could not keep it; where a row shares one, the row's loop does."""

    def logarithms(dim: int, *sizes: int) -> list[int]:
        found = lowered(lambda x: x - x.sum(dim, keepdim=True).log(), torch.rand(sizes))
        loops = [op for op in found.program.ops if isinstance(op, Loop)]
        return [
            op.body.domain.numel_hint
            for op in loops
            if any(at.stmt.op == "log" for at in op.body.walk())
        ]

    assert logarithms(1, 2, 21, 8, 32) == [2 * 8 * 32]
    assert logarithms(1, 2, 3, 8, 32) == [2 * 3 * 8 * 32], "too few share it"
    assert logarithms(3, 2, 4, 8, 32) == [2 * 4 * 8 * 32], "along the line"


def test_a_long_chain_is_cut() -> None:
    def chain(x: Any) -> Any:
        for _ in range(40):
            x = x.sin()
        return x

    assert kinds(lowered(chain, torch.randn(3))) == ["Loop", "Loop"]


def test_an_expensive_value_with_two_readers_is_computed_once() -> None:
    def function(x: Any) -> Any:
        y = x.exp().sin()
        return y.sum(0), y.sum(1)

    assert len(lowered(function, torch.randn(3, 4)).program.ops) == 3


def test_a_cheap_value_with_two_readers_is_computed_by_each() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return y.sum(0), y.sum(1)

    assert len(lowered(function, torch.randn(3, 4)).program.ops) == 2


def test_views_make_no_operations() -> None:
    def function(x: Any) -> Any:
        return x.permute(1, 0)[1:, ::2].unsqueeze(0).expand(5, -1, -1).sum(0)

    assert kinds(lowered(function, torch.randn(6, 4))) == ["Loop"]


def test_a_reshape_of_a_transposed_buffer_is_an_index_map() -> None:
    result = lowered(lambda x: x.permute(1, 0).clone().reshape(4, 6) * 2, torch.randn(6, 4))
    assert kinds(result) == ["Loop"]
    assert "//" not in str(result.program.ops[0])


def test_what_has_no_lowering_for_its_type_is_a_call() -> None:
    given = torch.randn(2, 3).double(), torch.randn(3, 2).double()
    result = lowered(lambda x, y: torch.mm(x + 1, y).relu(), *given)
    assert kinds(result) == ["Loop", "Extern", "Loop"]
    call = result.program.ops[1]
    assert isinstance(call, Extern)
    assert call.target == "aten.mm.default"
    ((name, reason),) = result.fallbacks
    assert name == "aten.mm.default"
    assert "library calls" in reason


def test_random_calls_stay_in_order() -> None:
    result = lowered(lambda x: torch.rand_like(x) + torch.randn_like(x), torch.randn(2))
    calls = [op for op in result.program.ops if isinstance(op, Extern)]
    assert [c.has_side_effects for c in calls] == [True, True]


def test_a_softmax_is_one_loop() -> None:
    result = lowered(lambda x: torch.ops.aten._softmax(x * 2, -1, False), torch.randn(3, 4))
    assert kinds(result) == ["Loop"]


def test_operations_know_the_operator_they_came_from() -> None:
    op = lowered(lambda x: x.sum(0), torch.randn(3, 4)).program.ops[0]
    assert isinstance(op, Loop)
    assert op.origins[0] == "aten.sum.dim_IntList"


def test_what_is_read_before_a_change_is_kept() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        torch.ops.aten.copy_(x, x + 1)
        return y

    result = lowered(function, torch.randn(3))
    assert result.mutated == {"x_1"}
    assert kinds(result)[0] == "Loop"


# -------------------------------------------------------------------------------- reshapes


def consts(*numbers: int) -> tuple[Any, ...]:
    return tuple([Const(n) for n in numbers])


def test_dimensions_are_grouped_as_finely_as_possible() -> None:
    assert grouped(consts(6, 4), consts(2, 3, 4)) == [
        DimensionGroup((0,), (0, 1)),
        DimensionGroup((1,), (2,)),
    ]
    assert grouped(consts(2, 3, 4), consts(24)) == [DimensionGroup((0, 1, 2), (0,))]
    assert grouped(consts(4, 6), consts(6, 4)) == [DimensionGroup((0, 1), (0, 1))]


def test_run_time_sizes_are_grouped_by_what_they_are() -> None:
    s = size("s0", 2, None, 1, 8)
    assert grouped((s, Const(6)), (s, Const(2), Const(3))) == [
        DimensionGroup((0,), (0,)),
        DimensionGroup((1,), (1, 2)),
    ]


def test_a_view_is_found_where_memory_allows_one() -> None:
    plain = Layout.contiguous(consts(6, 4))
    groups = grouped(plain.sizes, consts(24))
    assert view_strides(plain, consts(24), groups) == consts(1)
    turned = Layout(consts(4, 6), consts(1, 4))
    assert view_strides(turned, consts(24), groups) is None


def test_a_row_of_one_element_again_and_again_is_not_what_follows_it() -> None:
    spread = Layout(consts(6, 4), consts(1, 0))
    assert view_strides(spread, consts(24), grouped(spread.sizes, consts(24))) is None
    same = Layout(consts(6, 4), consts(0, 0))
    assert view_strides(same, consts(24), grouped(same.sizes, consts(24))) == consts(0)


# ---------------------------------------------------------------------------- sizes, registry


def test_sizes_of_torch_become_index_expressions() -> None:
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Mod

    sizes = GraphSizes()
    s = sympy.Symbol("s0", integer=True, positive=True)
    assert str(sizes.expr(2 * s + 3)) == "2*s0 + 3"
    assert str(sizes.expr(FloorDiv(s, 4))) == "(s0 // 4)"
    assert str(sizes.expr(Mod(s, 4))) == "(s0 % 4)"
    assert list(sizes.declared) == ["s0"]


def test_a_size_that_data_decides_is_refused() -> None:
    import sympy

    with pytest.raises(NotLowered, match="u0"):
        GraphSizes().expr(sympy.Symbol("u0", integer=True))


def test_an_overload_has_one_lowering() -> None:
    module: Any = type(registry)("twice")

    @registry.lowers("aten.a.default", "aten.a.default")
    def lowering(c: Any) -> Any:
        return c

    lowering.__module__ = "twice"
    module.lowering = lowering
    with pytest.raises(ValueError, match=r"aten\.a\.default has two lowerings"):
        registry.collect(module)
