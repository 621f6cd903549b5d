"""What no HLO text says: a name defined twice, an operand that comes later, unknown words.

module = parse_hlo(text)
list(unsound(module))   [] for every module that XLA writes
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from treadle.frontends.dumps import Finding
from treadle.frontends.xla_dump.hlo import Computation, Instruction, Module
from treadle.frontends.xla_dump.shapes import BITS, AnyShape, Shape

TWICE, TOO_EARLY, UNKNOWN_WORD = "XLA005", "XLA017", "XLA018"
_OPCODES = """
    abs acos acosh add add-dependency after-all all-gather all-reduce all-to-all and asin asinh
    async-start async-update async-done atan2 atanh batch-norm-grad batch-norm-inference
    batch-norm-training bitcast bitcast-convert broadcast call cbrt ceil cholesky clamp
    collective-broadcast collective-permute compare complex concatenate conditional constant convert
    convolution copy cosine cosh count-leading-zeros custom-call divide domain dot dynamic-reshape
    dynamic-slice dynamic-update-slice erf exponential exponential-minus-one fft floor fusion gather
    get-dimension-size get-tuple-element imag infeed iota is-finite log log-plus-one logistic map
    maximum minimum multiply negate not opt-barrier or outfeed pad parameter partition-id popcnt
    power ragged-all-to-all ragged-dot real recv reduce reduce-precision reduce-scatter
    reduce-window remainder replica-id reshape reverse rng rng-bit-generator
    rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scan scatter
    select select-and-scatter send set-dimension-size shift-left shift-right-arithmetic
    shift-right-logical sign sine sinh slice sort sqrt stochastic-convert subtract tan tanh topk
    transpose triangular-solve tuple while xor"""
OPCODES = frozenset(_OPCODES.split())
_PHASE = re.compile(r"-(?:start|update|done)$")
"""Operations that run beside others are split: `all-gather-start`, `fusion-done`."""
ELEMENTS = frozenset([*BITS, "tuple", "buffer", "c32"])


def unsound(module: Module) -> Iterator[Finding]:
    """Yield what is wrong with the text whatever its writer meant: one finding of a kind each."""
    computations = ((one.name, one.line) for one in module.computations)
    yield from _twice("computation", computations, module.file)
    found = [
        finding
        for computation in module.computations
        for finding in (*_names(computation, module.file), *_words(computation, module.file))
    ]
    seen: set[str] = set()
    for finding in found:
        if finding.code not in seen:
            seen.add(finding.code)
            yield finding


def _twice(what: str, names: Iterable[tuple[str, int]], file: str) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for name, line in names:
        if name in first:
            message = f"{what} {name} stands here a second time, first in line {first[name]}"
            yield Finding(TWICE, message, line, file=file)
            return
        first[name] = line


def _names(computation: Computation, file: str) -> Iterator[Finding]:
    instructions = computation.instructions
    yield from _twice("instruction", ((one.name, one.line) for one in instructions), file)
    all_names = {one.name for one in instructions}
    known: set[str] = set()
    for one in instructions:
        for name in one.operands if one.opcode not in ("parameter", "constant") else ():
            if name in all_names and name not in known:
                message = f"{one.name} takes {name}, which is defined only after it"
                yield Finding(TOO_EARLY, message, one.line, file=file)
                return
        known.add(one.name)


def _words(computation: Computation, file: str) -> Iterator[Finding]:
    for one in computation.instructions:
        if not is_opcode(one.opcode):
            message = f"{one.name}: there is no instruction '{one.opcode}'"
            yield Finding(UNKNOWN_WORD, message, one.line, file=file)
        unknown = next((e for e in _elements(one) if e not in ELEMENTS), None)
        if unknown is not None:
            message = f"{one.name}: there is no element type '{unknown}'"
            yield Finding(UNKNOWN_WORD, message, one.line, file=file)
        elif one.shape is None:
            message = f"{one.name}: the shape cannot be read"
            yield Finding(UNKNOWN_WORD, message, one.line, file=file)


def is_opcode(name: str) -> bool:
    """Whether HLO has an instruction of this name, or one that is split into such parts."""
    return name in OPCODES or _PHASE.sub("", name) in OPCODES


def _elements(one: Instruction) -> Iterator[str]:
    waiting: list[AnyShape] = [one.shape] if one.shape is not None else []
    while waiting:
        shape = waiting.pop()
        if isinstance(shape, Shape):
            yield shape.element
        else:
            waiting.extend(shape.elements)
