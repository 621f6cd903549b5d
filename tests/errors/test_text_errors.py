"""Bad program text: file, line, column, what was expected, in one line."""

from __future__ import annotations

import pytest

from treadle.core.errors import InputError
from treadle.ir.text import parse_program

HEAD = """treadle 1
program p
inputs x
outputs y

buffer x : f32[8] on cpu
buffer y : f32[8] on cpu

"""


def loop(*lines: str) -> str:
    return HEAD + "loop op on cpu for i in 8 {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


CASES = [
    ("", "1:1: expected 'treadle', found the end of the text"),
    ("hello", "1:1: expected 'treadle', found 'hello'"),
    ("treadle 2\n", "1:9: expected version 1 (what this Treadle reads), found '2'"),
    ("treadle 1\nprogramme p", "2:1: expected 'program', found 'programme p'"),
    (
        "treadle 1\nprogram p\ninputs x\ninputs y\n",
        "4:1: expected 'inputs' at most once, found 'inputs y'",
    ),
    (
        "treadle 1\nprogram p\nsize s in 5..3\n",
        "3:6: expected a size whose range, divisor and hint agree, found s: empty range 5..3",
    ),
    (
        "treadle 1\nprogram p\nsize s in 1..\nsize s in 1..\n",
        "4:6: expected a size name not used before, found 's in 1..'",
    ),
    (
        "treadle 1\nprogram p\nbuffer x : f33[8] on cpu\n",
        "3:12: expected an element type (bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3fn, "
        "f8e5m2, f16, bf16, f32, f64), found 'f33[8] on cpu'",
    ),
    (
        "treadle 1\nprogram p\nbuffer x : f32[n] on cpu\n",
        "3:16: expected a declared name, found 'n] on cpu'",
    ),
    ("treadle 1\nprogram p\nbuffer x : f32[8 on cpu\n", "3:18: expected ']', found 'on cpu'"),
    (
        "treadle 1\nprogram p\nbuffer x : f32[8] stride (1, 2) on cpu\n",
        "3:15: expected a sound layout, found 1 sizes but 2 strides",
    ),
    (
        HEAD + "lop a on cpu {\n",
        "9:1: expected an operation (alloc, collective, extern, foreach, fused, grouped, kernel, "
        "launch, loop, mixorder, nest, take, templat..., found 'lop a on cpu {'",
    ),
    (
        loop("%0 = load x[k]"),
        "10:15: expected a declared name, found 'k]'",
    ),
    (loop("%1 = load x[i]"), "10:3: expected %0, the next number, found '%1 = load x[i]'"),
    (
        loop("%0 = load x[i]", "%1 = add %0, %2"),
        "11:16: expected a value defined before in this body, found '%2'",
    ),
    (loop("%0 = load x[i]", "%1 = add %0"), "11:12: expected 2 operand(s), found '%0'"),
    (loop("%0 = frob x[i]"), "10:8: expected an operation name, found 'frob x[i]'"),
    (loop("load x[i]"), "10:3: expected '%0 =' before load, found 'load x[i]'"),
    (
        loop("%0 = load x[i]", "%1 = store y[i] = %0"),
        "11:3: expected 'store', found '%1 = store y[i] = %0'",
    ),
    (loop("%0 = load x[i] quickly"), "10:18: expected the end of the line, found 'quickly'"),
    (
        loop("%0 = load x[i]", "store y[i] = %0 mode atomic_sub"),
        "11:24: expected 'plain' or 'atomic_add' or 'atomic_mul' or 'atomic_min' or 'atomic_max' "
        "or 'atomic_and' or 'atomic_or' or 'atomic_xor', found 'atomic_sub'",
    ),
    (
        HEAD + "loop op on cpu for i in 8 {\n  %0 = load x[i]\n",
        "11:1: expected '}', found the end of the text",
    ),
    (
        HEAD + "loop op on cpu for i in 8, i in 4 {\n}\n",
        "9:20: expected sound loops, found a loop variable may occur once in a domain: i, i",
    ),
    (
        HEAD + 'extern e on cpu call "f (x)\n',
        "9:22: expected a quoted string, found '\"f (x)'",
    ),
    (
        HEAD + 'extern e on cpu call "f" (' + "[" * 30 + ")\n",
        "9:47: expected lists nested at most 20 deep, found '[[[[[[[[[[)'",
    ),
    (
        HEAD + 'extern e on cpu call "f" (1' + "0" * 500 + ")\n",
        "9:528: expected a literal (true, false, none, a number or a string), found ')'",
    ),
]


@pytest.mark.parametrize("text, message", CASES, ids=[m[:40] for _, m in CASES])
def test_bad_text_gives_one_line_with_place_and_expectation(text: str, message: str) -> None:
    with pytest.raises(InputError) as e:
        parse_program(text, "p.txt")
    assert e.value.render() == f"p.txt:{message} [TXT001]"
    assert e.value.exit_code == 2


def test_deep_groups_end_in_an_error_and_not_in_a_crash() -> None:
    text = HEAD + "".join(f"fused g{k} on cpu {{\n" for k in range(500))
    with pytest.raises(InputError, match="groups nested at most 20 deep"):
        parse_program(text)


def test_deep_regions_end_in_an_error_and_not_in_a_crash() -> None:
    lines = ["%0 = load x[i]", "%1 = isnan %0"]
    lines += [f"%{k} = masked %1 else 0.0 {{" for k in range(2, 400)]
    with pytest.raises(InputError, match="regions nested at most 50 deep"):
        parse_program(loop(*lines))
