from __future__ import annotations

import pytest

from treadle.codegen.c.index import COMPOUND
from treadle.codegen.c.ops import NATIVE, OWN, WIDE, cell_of
from treadle.codegen.c.reduce import REDUCERS
from treadle.codegen.c.scan import SCANNERS
from treadle.codegen.c.scatter import COMBINE
from treadle.codegen.c.statements import STATEMENTS
from treadle.codegen.c.types import STORED, float_literal, literal, whole_literal
from treadle.codegen.c.unit import prelude
from treadle.codegen.lower import LOWERED
from treadle.index import Const, Expr, Product, Sum, Symbol
from treadle.index.expr import _Compound
from treadle.ir.ops import OPS, POINTWISE, REDUCTIONS, SCAN_COMBINES, STORE_MODES
from treadle.ir.program import GROUP_KINDS, LEAF_KINDS
from treadle.ir.types import DType
from treadle.ir.typing import ACCEPTS, as_float
from treadle.kernel.build import BUILDERS
from treadle.kernel.stages import COMBINING


def test_every_pointwise_operation_has_one_row() -> None:
    tables = [set(NATIVE), set(WIDE), set(OWN)]
    assert set().union(*tables) == set(POINTWISE)
    assert sum(map(len, tables)) == len(POINTWISE)


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_a_row_has_a_cell_for_every_type_its_operation_accepts(name: str) -> None:
    for dtype in DType:
        if ACCEPTS[POINTWISE[name].accepts](dtype):
            common = as_float(dtype) if POINTWISE[name].result == "float" else dtype
            assert cell_of(name, common) is not None, (name, common)


def test_every_statement_can_be_written() -> None:
    assert set(STATEMENTS) | COMBINING | {"yield"} == set(OPS)


def test_every_reduction_scan_and_store_mode_has_a_row() -> None:
    assert set(REDUCERS) == set(REDUCTIONS)
    assert set(SCANNERS) | {"region", "unknown"} == set(SCAN_COMBINES)
    assert set(COMBINE) | {"plain"} == set(STORE_MODES)


def test_every_element_type_has_a_c_type() -> None:
    assert set(STORED) == set(DType)


def test_every_kind_of_operation_is_lowered() -> None:
    assert set(LOWERED) | set(BUILDERS) == {*LEAF_KINDS, *GROUP_KINDS}


def test_every_kind_of_index_expression_is_written() -> None:
    plain = {Const, Symbol, Sum, Product}
    kinds = {c for c in (*Expr.__subclasses__(), *_Compound.__subclasses__()) if c is not _Compound}
    assert set(COMPOUND) == kinds - plain


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (300, DType.U8, "((uint8_t)44u)"),
        (-1, DType.U64, "((uint64_t)18446744073709551615uLL)"),
        (2**63, DType.I64, "INT64_MIN"),
        (float("nan"), DType.I32, "((int32_t)0)"),
        (-2.5, DType.I16, "((int16_t)-2)"),
        ("nan", DType.BOOL, "1"),
        (0.5, DType.F64, "0x1.0000000000000p-1"),
        (-0.0, DType.F64, "(-0x0.0p+0)"),
    ],
)
def test_constants_are_written_to_the_bit(value: object, dtype: DType, text: str) -> None:
    assert literal(value, dtype) == text


def test_infinities_and_whole_numbers_need_no_library() -> None:
    assert float_literal(float("-inf")) == "(-(double)INFINITY)"
    assert whole_literal(-(2**31), DType.I32) == "((int32_t)-2147483648)"


def test_only_the_parts_of_the_prelude_that_are_asked_for_are_there() -> None:
    assert "tr_gammainc" not in prelude()
    assert "tr_gammainc" in prelude(frozenset({"special"}))
    assert "TR_SORT" in prelude(frozenset({"sort"}))
