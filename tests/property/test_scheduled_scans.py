"""Scans that run side by side stay within the bound of their program."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_c_programs import EXAMPLES, agree_in_shared_memory
from test_scheduled_c import scheduled, stay_within

from treadle.ir.interp.compare import random_inputs
from treadle.ir.program import Nest, Program
from treadle.ir.text import parse_program
from treadle.kernel.allowed_steps import kernel_violations

TYPES = ("f32", "f32", "f64", "f16", "bf16", "i64", "i32", "u8")
SIZES = (1, 2, 3, 4, 8, 12, 31, 33, 64, 100)
LENGTHS = (1, 2, 7, 33, 64, 1021, 1025)
TEXT = """treadle 1
program p
inputs x
outputs y

buffer x : {given}[{count}] on cpu
buffer y : {to}[{count}] on cpu

loop body on cpu for {domain} reduce {reduce} {{
  %0 = load x[{read}]
  %1 = {first}
  %2 = scan {combine} %1
  %3 = {last}
  store y[{written}] = %3
}}
"""


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def address(rng: random.Random, loops: dict[str, int], may_turn: bool) -> str:
    """Every element once, the loops in any order of memory; one of them may go backwards."""
    names, stride, terms = rng.sample(list(loops), len(loops)), 1, []
    turned = rng.choice(names) if may_turn and rng.random() < 0.3 else None
    for name in reversed(names):
        at = f"({loops[name] - 1} - {name})" if name == turned else name
        terms.append(f"{stride}*{at}")
        stride *= loops[name]
    return " + ".join(terms)


def scans(seed: int) -> Program:
    """A scan over one or two loops of a tensor that lies in memory in any order."""
    rng = random.Random(seed)
    domain = {f"i{k}": rng.choice(SIZES) for k in range(rng.choice((0, 1, 1, 2)))}
    reduce = {"r0": rng.choice(LENGTHS)}
    if rng.random() < 0.2:
        reduce = {"r0": rng.choice((2, 3)), "r1": rng.choice((1, 33))}
    loops = domain | reduce
    count = 1
    for n in loops.values():
        count *= n
    given, to = rng.choice(TYPES), rng.choice(TYPES)
    where = address(rng, loops, may_turn=False)
    text = TEXT.format(
        given=given,
        to=to,
        count=count,
        domain=", ".join(f"{k} in {n}" for k, n in domain.items()),
        reduce=", ".join(f"{k} in {n}" for k, n in reduce.items()),
        read=where if rng.random() < 0.6 else address(rng, loops, may_turn=True),
        first=rng.choice(("neg %0", "cast f32 %0", "cast f64 %0", "add %0, %0")),
        combine=rng.choice(("add", "add", "mul", "max", "min")),
        last=rng.choice(("neg %2", f"cast {to} %2")),
        written=where,
    )
    return parse_program(text.replace(" for  reduce", " reduce"))


@settings(max_examples=2 * EXAMPLES)
@given(st.integers(0, 2**20))
def test_scans_stay_within(seed: int) -> None:
    program = scans(seed)
    stay_within(program, {}, random_inputs(program))


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**20))
def test_scans_agree_in_shared_memory(seed: int) -> None:
    agree_in_shared_memory(scheduled(scans(seed), fuses=True))


def test_these_scans_go_side_by_side_and_through_tiles() -> None:
    steps = []
    for seed in range(80):
        leaves = scheduled(scans(seed), fuses=False).leaves
        steps += [" ".join(map(str, n.schedule)) for n in leaves if isinstance(n, Nest)]
    assert sum("vector" in one for one in steps) > 10
    assert sum("by 4 " in one for one in steps) > 3
    assert sum("stage" in one for one in steps) > 3


@pytest.mark.parametrize(
    "steps, allowed",
    [
        ("split i by 8, order i r s i', bind i' to vector", True),
        ("order i r s", True),
        ("split s by 4, order i r s s'", True),
        ("order i r s, bind s to vector", False),
        ("order i s r", False),
        ("split r by 4, order i r s r'", False),
    ],
)
def test_a_schedule_keeps_the_order_of_a_scan(steps: str, allowed: bool) -> None:
    program = parse_program(
        f"""treadle 1
program p
inputs x
outputs y
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

buffer x : f32[64, 64] on cpu
buffer y : f32[64, 64] on cpu

launch k on cpu loop {{
  nest n on cpu for i in 64 reduce r in 8, s in 8 runs (n) schedule ({steps}) {{
    %0 = load x[512*r + 64*s + i]
    %1 = scan add %0
    store y[512*r + 64*s + i] = %1
  }}
}}
"""
    )
    assert (not kernel_violations(program)) is allowed
