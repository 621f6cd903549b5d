"""The page of operators says what is in the table, and why the rest is called."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from treadle.frontends.torch.lowering.table import TABLE  # noqa: E402
from treadle.frontends.torch.report import operator_list  # noqa: E402

pytestmark = pytest.mark.torch

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
NEWEST = "2.13"


@pytest.mark.skipif(
    not torch.__version__.startswith(NEWEST), reason=f"the page is about torch {NEWEST}"
)
def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == operator_list.page()


def test_every_lowered_overload_is_listed_once() -> None:
    listed = [name for names in operator_list.lowered().values() for name in names]
    assert sorted(listed) == sorted(TABLE)


def test_an_overload_is_either_lowered_or_called() -> None:
    called = {name for names in operator_list.called().values() for name in names}
    assert called
    assert not called & set(TABLE)


@pytest.mark.parametrize(
    ("overload", "word"),
    [
        ("aten.mm.default", "matrix"),
        ("aten.convolution.default", "matrix"),
        ("aten.randn.default", "random"),
        ("aten._linalg_svd.default", "LAPACK"),
        ("aten.nonzero.default", "depends on the data"),
        ("aten.view_as_real.default", "complex"),
        ("aten.max_pool3d_with_indices.default", "no lowering"),
    ],
)
def test_a_reason_is_given_for_every_call(overload: str, word: str) -> None:
    assert word in operator_list.reason_for(overload)


def test_overloads_of_one_operator_stand_together() -> None:
    names = ["aten.add.Scalar", "aten.add.Tensor", "aten.mm.default"]
    assert operator_list.listed(names) == "`add` (Scalar, Tensor), `mm`"
