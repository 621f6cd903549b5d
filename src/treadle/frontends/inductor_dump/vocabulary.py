"""The words that a dump may use: operations of bodies and element types.

A word that no version of the peer writes means that a file was damaged or made by hand. Known words
that have no meaning here (a scan's combination, 4-bit floats) are fine: what uses them is opaque.
"""

from __future__ import annotations

from treadle.frontends.inductor_dump.import_body import RENAMED, SPECIAL
from treadle.ir.ops import POINTWISE
from treadle.ir.types import DTYPES

_OTHER_OPERATIONS = """
    dot halide_clamp igamma igammac indirect_indexing inline_asm_elementwise masked output
    partial_accumulate placeholder rand_eager randn_eager scan frexp"""
OPERATIONS = frozenset([*POINTWISE, *RENAMED, *SPECIAL, *_OTHER_OPERATIONS.split()])
_LIBRARY_PREFIX = "libdevice_"
"""Versions up to 2.7 name some functions twice, `exp` and `libdevice_exp`."""

_OTHER_ELEMENTS = """
    complex32 complex64 complex128 float4_e2m1fn_x2 float8_e4m3fnuz float8_e5m2fnuz
    float8_e8m0fnu qint8 quint8 qint32 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16
    half float double long int short int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4
    uint5 uint6 uint7"""
ELEMENTS = frozenset([*DTYPES, *_OTHER_ELEMENTS.split()])


def is_operation(name: str) -> bool:
    """Whether a loop body may say `ops.NAME`."""
    return name.removeprefix(_LIBRARY_PREFIX) in OPERATIONS


def is_element_type(name: str) -> bool:
    """Whether `torch.NAME` is an element type."""
    return name in ELEMENTS
