"""Numerics: what a program allows generated code to do to its floats, as data and as text."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import replace

import pytest

from treadle.core.errors import InputError
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import EXACT, TORCH, Numerics
from treadle.ir.program import Program
from treadle.ir.text import parse_program, show_program

MANY = [
    Numerics(sums, block, ulps, *flags)
    for sums, block in (("exact", 512), ("blocked", 8), ("blocked", 512), ("f32", 512))
    for ulps in (0.5, 1.25, 6.0, 1e9)
    for flags in itertools.product((False, True), repeat=3)
]
HEAD = "treadle 1\nprogram p\ninputs x\n"
TAIL = "\nbuffer x : f32[8] on cpu\n"


def program(numerics: Numerics = EXACT) -> Program:
    b = ProgramBuilder("p", numerics=numerics)
    b.input("x", "f32", [8])
    return b.build()


def test_a_program_that_says_nothing_is_exact() -> None:
    assert program().numerics == EXACT == Numerics()
    assert "numerics" not in show_program(program())
    assert parse_program(HEAD + "numerics exact" + TAIL) == program()


def test_numerics_are_one_line_of_the_text() -> None:
    text = show_program(program(TORCH))
    line = "numerics blocked 512, functions 6 ulp, as result, contract, reassociate"
    assert line in text.splitlines()
    assert str(TORCH) == line.removeprefix("numerics ")


@pytest.mark.parametrize("numerics", MANY, ids=str)
def test_numerics_read_back_as_they_were_printed(numerics: Numerics) -> None:
    of = program(numerics)
    assert parse_program(show_program(of)) == of
    assert pickle.loads(pickle.dumps(of)) == of
    assert of.with_ops(()).numerics == replace(of, name="q").numerics == numerics


@pytest.mark.parametrize(
    "line, message",
    [
        ("often", "4:10: expected 'exact' or 'blocked' or 'f32', found 'often'"),
        (
            "blocked",
            "4:17: expected the most additions of a partial sum, found the end of the line",
        ),
        (
            "blocked 0",
            "4:10: expected numerics that can be kept, found a block of 0 additions",
        ),
        (
            "exact, quickly",
            "4:17: expected 'functions' or 'as' or 'contract' or 'reassociate', found 'quickly'",
        ),
        (
            "exact, functions 0.25 ulp",
            "4:10: expected numerics that can be kept, found an error of 0.25 ulp, where 0.5 is the"
            " least",
        ),
        ("exact, functions true ulp", "4:27: expected a number of ulp, found 'true ulp'"),
        ("exact, functions 4", "4:28: expected 'ulp', found the end of the line"),
        ("exact, as well", "4:20: expected 'result', found 'well'"),
        ("f32, contract, contract", "4:25: expected 'contract' at most once, found 'contract'"),
        ("f32 contract", "4:14: expected the end of the line, found 'contract'"),
        ("f32\nnumerics f32", "5:1: expected 'numerics' at most once, found 'numerics f32'"),
    ],
)
def test_bad_numerics_are_one_line_with_the_place(line: str, message: str) -> None:
    with pytest.raises(InputError) as e:
        parse_program(f"{HEAD}numerics {line}{TAIL}", "p.txt")
    assert e.value.render() == f"p.txt:{message} [TXT001]"


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.4, -1.0])
def test_an_error_that_cannot_be_kept_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"ulp, where 0\.5 is the least"):
        Numerics(function_ulps=wrong)


def test_a_sum_in_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="not in 'f16'"):
        Numerics("f16")


def test_only_blocked_sums_have_blocks() -> None:
    assert Numerics("exact", 8) == EXACT
    assert Numerics("f32", 8) == Numerics("f32", 9)
    assert Numerics("blocked", 8) != Numerics("blocked", 9)


def test_within_is_an_order_and_exact_is_within_all() -> None:
    for a in MANY:
        assert EXACT.is_within(a)
        assert a.is_within(a)
        for b in MANY:
            assert not (a.is_within(b) and b.is_within(a)) or a == b
            both = a.meet(b)
            assert both.is_within(a)
            assert both.is_within(b)
            assert (both == a) == a.is_within(b)
            assert both == b.meet(a)


@pytest.mark.parametrize(
    "looser, what",
    [
        (Numerics("blocked", 8), "sums were exact, now blocked 8"),
        (Numerics("f32"), "sums were exact, now f32"),
        (Numerics(function_ulps=0.75), "functions were within 0.5 ulp, now 0.75"),
        (Numerics(as_result=True), "as_result was not allowed, now it is"),
        (Numerics(contraction=True), "contraction was not allowed, now it is"),
        (Numerics(reassociation=True), "reassociation was not allowed, now it is"),
    ],
)
def test_every_freedom_is_looser_than_exact_and_says_so(looser: Numerics, what: str) -> None:
    assert list(looser.looser_than(EXACT)) == [what]
    assert not looser.is_within(EXACT)
    assert list(EXACT.looser_than(looser)) == []


def test_longer_partial_sums_are_looser() -> None:
    chain = [EXACT, Numerics("blocked", 1), Numerics("blocked", 64), Numerics("f32")]
    for k, a in enumerate(chain):
        assert [a.is_within(b) for b in chain] == [n >= k for n in range(len(chain))]
