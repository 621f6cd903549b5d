"""Every table of the interpreter covers every row of the tables it interprets, and no more."""

import pytest

from treadle.ir.interp.access import BITWISE, COMBINE
from treadle.ir.interp.dtypes import NUMPY_TYPES
from treadle.ir.interp.machine import RUNNERS
from treadle.ir.interp.pointwise import NATIVE, OWN
from treadle.ir.interp.random import GENERATORS
from treadle.ir.interp.reductions import NEEDS_AN_ELEMENT, REDUCERS
from treadle.ir.interp.scan_sort import SCANNERS
from treadle.ir.interp.special import WIDE
from treadle.ir.interp.statements import EFFECTS, STATEMENTS
from treadle.ir.ops import OPS, POINTWISE, REDUCTIONS, SCAN_COMBINES, STORE_MODES, Family
from treadle.ir.program import LEAF_KINDS
from treadle.ir.types import DType


def test_every_pointwise_operation_has_one_way_to_compute_it() -> None:
    assert {*NATIVE, *WIDE, *OWN} == set(POINTWISE)
    assert len(NATIVE) + len(WIDE) + len(OWN) == len(POINTWISE)


def test_functions_computed_in_f64_have_a_float_result() -> None:
    assert {POINTWISE[name].result for name in WIDE} == {"float"}


def test_every_statement_is_run() -> None:
    assert set(STATEMENTS) == {name for name, d in OPS.items() if d.produces}
    assert {*EFFECTS, "yield"} == {name for name, d in OPS.items() if not d.produces}


@pytest.mark.parametrize(
    "table, wanted",
    [
        (REDUCERS, set(REDUCTIONS)),
        (SCANNERS, set(SCAN_COMBINES) - {"region", "unknown"}),
        (COMBINE, set(STORE_MODES) - {"plain"}),
        (GENERATORS, {name for name, d in OPS.items() if d.family is Family.RANDOM}),
        (RUNNERS, set(LEAF_KINDS)),
        (NUMPY_TYPES, set(DType)),
    ],
    ids=["reductions", "scans", "store modes", "random", "operation kinds", "element types"],
)
def test_the_table_is_total(table: object, wanted: set[object]) -> None:
    assert set(table) == wanted  # type: ignore[call-overload]


def test_exceptions_name_rows_that_exist() -> None:
    assert set(REDUCERS) > NEEDS_AN_ELEMENT
    assert set(COMBINE) > BITWISE


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_numpy_types_have_the_declared_width(dtype: DType) -> None:
    assert NUMPY_TYPES[dtype].itemsize == dtype.itemsize
