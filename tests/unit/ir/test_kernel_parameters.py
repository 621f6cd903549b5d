"""Parameters of kernels: read back, broken on purpose (KER008), and what they mean for pointers."""

from __future__ import annotations

import pytest

from treadle.codegen.lower import lower
from treadle.core.errors import InputError, SpecError
from treadle.ir.parameters import (
    Contiguity,
    KernelParameter,
    ParameterAccess,
    may_alias,
    unshared,
)
from treadle.ir.spec import violations
from treadle.ir.text import parse_program, show_program
from treadle.kernel.allowed_steps import kernel_violations
from treadle.runtime import compile_program

TEXT = """treadle 1
program p
inputs x
outputs y

buffer x : f32[8] on cpu
buffer t : f32[8] on cpu
buffer y : f32[8] on cpu

launch a on cpu loop {
  parameter x : read contiguous align 4 of caller
  parameter t : write contiguous align 64
  nest a_nest on cpu for i in 8 runs (a) {
    %0 = load x[i]
    %1 = exp %0
    store t[i] = %1
  }
}

launch b on cpu loop {
  parameter t : read contiguous align 64
  parameter y : write contiguous align 64 over t
  nest b_nest on cpu for i in 8 runs (b) {
    %0 = load t[i]
    %1 = neg %0
    store y[i] = %1
  }
}
"""
READ, WRITE = ParameterAccess.READ, ParameterAccess.WRITE


def one(
    name: str, access: ParameterAccess, of_caller: bool = False, over: str | None = None
) -> KernelParameter:
    return KernelParameter(name, access, Contiguity.CONTIGUOUS, 4, of_caller, over)


def test_the_text_reads_back() -> None:
    program = parse_program(TEXT)
    assert violations(program) == []
    assert list(kernel_violations(program)) == []
    assert show_program(program) == TEXT


@pytest.mark.parametrize(
    ("was", "lie", "message"),
    [
        ("parameter x : read", "parameter x : write", "x is said to be write; it is read"),
        ("t : write contig", "t : accumulate contig", "t is said to be accumulate; it is write"),
        ("x : read contiguous", "x : read strided", "x is said to be strided; it is contiguous"),
        ("align 64\n  nest a", "align 128\n  nest a", "aligned to 128 bytes; known are 64"),
        ("align 4 of caller", "align 0 of caller", "aligned to 0 bytes; known are 4"),
        ("align 4 of caller", "align 4", "parameter x is the caller's"),
        ("align 64\n  nest a", "align 64 of caller\n  nest a", "parameter t is not the caller's"),
        ("over t", "over x", "y is said to be written over x, which is no parameter"),
        ("  parameter t : write contiguous align 64\n", "", "parameters x, and touches x, t"),
        ("parameter x :", "parameter q :", "parameters q, t, and touches x, t"),
    ],
)
def test_a_parameter_that_lies_is_found(was: str, lie: str, message: str) -> None:
    assert was in TEXT
    found = violations(parse_program(TEXT.replace(was, lie, 1)))
    assert [v.code for v in found] == ["KER008"]
    assert message in str(found[0])


def test_less_than_is_known_of_an_alignment_is_no_lie() -> None:
    assert violations(parse_program(TEXT.replace("align 64", "align 16"))) == []


def test_shared_memory_that_is_not_stated_is_found_and_not_launched() -> None:
    program = parse_program(TEXT.replace(" over t", ""))
    assert violations(program) == []
    (found,) = kernel_violations(program)
    assert str(found) == "KER008 at b: parameter y may be written over t: it does not say so"
    with pytest.raises(SpecError, match="may be written over t"):
        lower(program)


@pytest.mark.parametrize(
    ("was", "wrong", "expected"),
    [
        (": read contiguous", ": reads contiguous", "'readwrite' or 'accumulate'"),
        ("read contiguous", "read dense", "'strided' or 'indirect'"),
        ("align 4 of", "aligned 4 of", "'align'"),
        ("of caller", "of callers", "'caller'"),
    ],
)
def test_a_line_that_cannot_be_read_is_one_error(was: str, wrong: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_program(TEXT.replace(was, wrong, 1), "k.txt")
    assert "k.txt:11" in str(caught.value)
    assert expected in str(caught.value)


def test_who_may_share_memory() -> None:
    given = [one("a", READ, True), one("b", READ, True), one("c", READ), one("d", WRITE, over="c")]
    found = may_alias(given)
    assert found == {
        "a": frozenset({"b"}),
        "b": frozenset({"a"}),
        "c": frozenset({"d"}),
        "d": frozenset({"c"}),
    }
    # What is only read may be read through several pointers.
    assert unshared(given) == {"a", "b"}


def test_what_is_written_over_the_callers_memory_may_meet_all_of_it() -> None:
    given = [one("a", READ, True), one("b", READ, True), one("d", WRITE, over="a"), one("e", WRITE)]
    assert may_alias(given)["d"] == {"a", "b"}
    assert unshared(given) == {"e"}


def test_pointers_that_share_nothing_are_restrict() -> None:
    unit = compile_program(parse_program(TEXT)).unit
    first, second = (kernel.text.splitlines()[0] for kernel in unit.kernels)
    assert first.count("restrict") == 2
    assert "restrict" not in second
