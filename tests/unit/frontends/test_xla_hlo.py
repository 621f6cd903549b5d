"""HLO text and the shapes in it, read without being evaluated."""

from __future__ import annotations

import pytest

from treadle.core.errors import InputError
from treadle.frontends.xla_dump.hlo import parse_hlo, parse_instruction
from treadle.frontends.xla_dump.shapes import Shape, TupleShape, byte_size, parse_shape, subshape


@pytest.mark.parametrize(
    "text, size",
    [
        ("f32[]", 4),
        ("bf16[32,1024]{1,0}", 65536),
        ("pred[3]{0}", 3),
        ("c128[2]{0}", 32),
        ("s4[3]{0:E(4)}", 2),
        ("s4[3]{0}", 3),
        ("f32[0,4]{1,0}", 0),
        ("token[]", 0),
        ("()", 0),
        ("(f32[2]{0}, (s32[], s8[7]{0}))", 16),
        ("(f32[2]{0}, /*index=1*/s32[])", 16),
        ("f32[8,128]{1,0:T(8,128)}", None),
        ("f32[<=10]{0}", None),
        ("f32[?,3]{1,0}", None),
        ("x9[3]", None),
    ],
)
def test_bytes_of_shapes(text: str, size: int | None) -> None:
    shape = parse_shape(text)
    assert shape is not None
    assert byte_size(shape) == size


@pytest.mark.parametrize("text", ["", "f32", "f32[2", "(f32[]", "f32[] ", "f32[x]", "(" * 100])
def test_what_is_no_shape(text: str) -> None:
    assert parse_shape(text) is None


def test_subshapes_are_found_by_index() -> None:
    shape = parse_shape("(f32[2]{0}, (s32[], s8[7]{0}))")
    assert shape is not None
    assert subshape(shape, (1, 1)) == Shape("s8", (7,), "{0}")
    assert subshape(shape, ()) is shape
    assert subshape(shape, (2,)) is None
    assert subshape(shape, (0, 0)) is None
    assert isinstance(subshape(shape, (1,)), TupleShape)


def test_an_instruction_is_taken_apart_with_and_without_shapes_and_signs() -> None:
    with_shapes = parse_instruction("%a.1 = f32[4]{0} add(f32[4]{0} %b, (s32[], f32[]) %c), x={1}")
    bare = parse_instruction("ROOT a.1 = f32[4]{0} add(b, /*index=1*/c)")
    assert with_shapes is not None
    assert bare is not None
    for found in (with_shapes, bare):
        assert (found.name, found.opcode, found.operands) == ("a.1", "add", ("b", "c"))
    assert bare.is_root


def test_constants_have_no_operands_and_parameters_have_a_number() -> None:
    constant = parse_instruction("%c = f32[2]{0} constant({1, (2)})")
    parameter = parse_instruction("%p = f32[2]{0} parameter(7)")
    assert constant is not None
    assert constant.operands == ()
    assert parameter is not None
    assert parameter.parameter_number == 7


@pytest.mark.parametrize(
    "attributes, called",
    [
        ("to_apply=%sum.3", [("to_apply", "sum.3")]),
        ('kind=kLoop, calls=%fused, metadata={op_name="calls=x"}', [("calls", "fused")]),
        ("condition=c, body=b", [("condition", "c"), ("body", "b")]),
        ("branch_computations={%x, %y}", [("branch_computations", n) for n in "xy"]),
    ],
)
def test_called_computations_are_found(attributes: str, called: list[tuple[str, str]]) -> None:
    found = parse_instruction(f"%w = f32[] call(%a), {attributes}")
    assert found is not None
    assert list(found.called) == called


def test_only_sequential_callers_are_part_of_the_schedule() -> None:
    loop = parse_instruction("w = f32[] while(a), body=b, condition=c")
    reduce = parse_instruction("r = f32[] reduce(a, z), dimensions={0}, to_apply=add")
    assert loop is not None
    assert loop.computations() == ("c", "b")
    assert reduce is not None
    assert reduce.computations() == ()


MODULE = """HloModule m, is_scheduled=true, entry_computation_layout={(f32[])->f32[]}

FileNames
1 "a.py"

%inner (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %y = f32[] negate(%x), metadata={op_name="a}b" source="c\\"d"}
}

ENTRY %main (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  ROOT %call = f32[] call(%p), to_apply=%inner
}

"""


def test_a_module_has_computations_an_entry_and_roots() -> None:
    module = parse_hlo(MODULE)
    assert (module.name, module.is_scheduled) == ("m", True)
    assert [one.name for one in module.computations] == ["inner", "main"]
    assert module.entry.name == "main"
    assert module.entry.root.opcode == "call"
    assert list(module.dangling()) == []


def test_the_entry_is_the_last_computation_where_none_is_marked() -> None:
    module = parse_hlo(MODULE.replace("ENTRY ", "").replace("ROOT ", ""))
    assert module.entry.name == "main"
    assert module.entry.root.name == "call"


def test_what_is_named_but_not_there_is_found() -> None:
    module = parse_hlo(MODULE.replace("to_apply=%inner", "to_apply=%outer"))
    assert [(one.name, name) for one, name in module.dangling()] == [("call", "outer")]


def test_a_stray_line_is_refused_with_its_place() -> None:
    with pytest.raises(
        InputError, match=r"m\.txt:6: expected a computation 'NAME {', found 'stray'"
    ):
        parse_hlo(MODULE.replace("%inner (x", "stray\n%inner (x", 1), "m.txt")
