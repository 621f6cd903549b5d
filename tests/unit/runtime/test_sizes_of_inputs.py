"""Run-time sizes are read where an input shows them: from numbers first, then from tensors."""

from __future__ import annotations

import pytest

from treadle.ir.text import parse_program
from treadle.runtime.hosts.sizes_of_inputs import SizesOfInputs
from treadle.runtime.signature import Signature

PROGRAM = parse_program("""treadle 1
program p
inputs x, z
outputs y

size s0 in 2..64 hint 8
size s1 in 2..64 hint 8

buffer x : f32[s0, 4] on cpu
buffer z : f32[s1, s0] on cpu
buffer y : f32[s0, 4] on cpu

loop copy on cpu for i in s0, j in 4 {
  %0 = load x[4*i + j]
  store y[4*i + j] = %0
}
""")


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def dim(self) -> int:
        return len(self.shape)


def test_numbers_come_first() -> None:
    signature = Signature(numbers=((0, "s0"), (2, "s1")), tensors=((1, "x"), (3, "z")))
    sizes = SizesOfInputs(PROGRAM, signature)
    assert sizes([5, Tensor(9, 4), 7, None]) == (("s0", 5), ("s1", 7))


def test_what_no_number_says_is_read_from_the_first_tensor_that_is_there() -> None:
    signature = Signature(numbers=((2, "s1"),), tensors=((0, "x"), (1, "z")))
    sizes = SizesOfInputs(PROGRAM, signature)
    assert sizes([Tensor(5, 4), Tensor(7, 6), 7]) == (("s0", 5), ("s1", 7))
    assert sizes([None, Tensor(7, 6), 7]) == (("s0", 6), ("s1", 7))


def test_a_size_that_nothing_shows_is_an_error() -> None:
    sizes = SizesOfInputs(PROGRAM, Signature(numbers=((0, "s1"),), tensors=((1, "x"),)))
    with pytest.raises(ValueError, match="no input shows"):
        sizes([7, None])
