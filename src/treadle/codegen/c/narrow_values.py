"""What the floats of a loop hold: which are narrow ones as they are, and what their NaNs are.

const float v1 = tr_decode_bf16(p0[r0]);     holds a bf16
const float v2 = fabsf(v1);                  still does: rounding it to bf16 changes nothing
const float v3 = tr_round_bf16(v2 + v1);     no bf16 before it is rounded; if it is a NaN, then one
                                             of a bf16 or the machine's own: a zero lower half

To round a float to bf16 half an ulp is added to its bits, and what flows over from the lower half
is what counts. In the bits of any NaN that may carry into the sign, so that those need to be seen
to; in one whose lower half is zero nothing flows over, and it stays what it is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from treadle.codegen.c.block import CodeBlock
from treadle.codegen.c.lines import (
    CBinary,
    CCall,
    CCast,
    CChoice,
    CName,
    CNumber,
    CTree,
    CUnary,
)

NARROW = ("bf16", "f16")
ROUNDED = {f"tr_round_{kind}": kind for kind in NARROW}
NONE: frozenset[str] = frozenset()
ONE_OF = frozenset({"tr_maximum_f32", "tr_minimum_f32"})
"""Functions that give one of their operands."""
DECLARED = re.compile(r"\b(?:float|double|u?int\d+_t) (?:\*const )?(\w+)\b(.*)")
NUMBER = re.compile(r" = \(float\)\(?(-?0x[0-9a-f.]+p[+-]\d+)\)?;")
LIMITS = frozenset({"INFINITY", "NAN"})


def numbers_within(top: CodeBlock) -> dict[str, float]:
    """The values of the floats that are literals wherever they are declared in a block."""
    found: dict[str, set[str]] = {}
    for line in top.lines():
        for name, rest in DECLARED.findall(line):
            number = NUMBER.fullmatch(rest) if "const float" in line else None
            found.setdefault(name, set()).add(number[1] if number else "")
    return {
        n: float.fromhex(*texts) for n, texts in found.items() if len(texts) == 1 > ("" in texts)
    }


class NarrowValues:
    """What is known of the values of one loop, as its lines are read one after the other."""

    def __init__(self, numbers: Mapping[str, float]) -> None:
        self.numbers = numbers
        """Floats that stand outside of the loop, of which the value is known."""
        self._holds: dict[str, frozenset[str]] = {}
        self._is_mild: dict[str, bool] = {}
        self._is_doubled: dict[str, bool] = {}

    def learn(self, name: str, value: CTree) -> None:
        """Note what a value of the loop is."""
        self._holds[name], self._is_mild[name] = self.holds(value), self.is_mild(value)
        self._is_doubled[name] = self.is_doubled(value)

    def learn_of_8_bits(self, name: str) -> None:
        """Note that a value of the loop is a whole number of 8 bits."""
        self._holds[name], self._is_mild[name] = frozenset(NARROW), True
        self._is_doubled[name] = False

    def holds(self, e: CTree) -> frozenset[str]:
        """The narrow types that have every value of an expression."""
        number = self.number(e)
        if number is not None:
            return frozenset(kind for kind in NARROW if _has(kind, number))
        match e:
            case CName(text):
                return frozenset(NARROW) if text in LIMITS else self._holds.get(text, NONE)
            case CCast("int8_t" | "uint8_t", _):
                return frozenset(NARROW)
            case CCast("float", value) | CUnary("-", value) | CCall("fabsf", (value,)):
                return self.holds(value)
            case CChoice(_, a, b) | CCall("tr_chosen_f32", (_, a, b)):
                return self.holds(a) & self.holds(b)
            case CCall(function, (a, b)) if function in ONE_OF:
                return self.holds(a) & self.holds(b)
            case CCall(function, _):
                return frozenset(
                    k for k in NARROW if function in (f"tr_decode_{k}", f"tr_round_{k}")
                )
            case CBinary("*", a, b):
                return self._doubled(a, b) | self._doubled(b, a)
        return NONE

    def _doubled(self, value: CTree, by: CTree) -> frozenset[str]:
        """A bf16 times 2, 4, ...: what is too large for bf16 is so for a float, too."""
        number = self.number(by)
        is_power = number is not None and number >= 1 and number in _POWERS
        return self.holds(value) & {"bf16"} if is_power else NONE

    def is_doubled(self, e: CTree) -> bool:
        """Whether an expression has a product in it that is not rounded.

        A compiler rounds it together with a sum that reads it: what is too large comes back then.
        """
        match e:
            case CName(text):
                return self._is_doubled.get(text, False)
            case CCast(_, value) | CUnary(_, value):
                return self.is_doubled(value)
            case CChoice(_, a, b):
                return self.is_doubled(a) or self.is_doubled(b)
            case CCall(function, args):
                is_rounded = function.startswith("tr_round_") and not self.keeps(function, args[0])
                return not is_rounded and any(map(self.is_doubled, args))
            case CBinary(op, a, b):
                return op == "*" or self.is_doubled(a) or self.is_doubled(b)
        return False

    def keeps(self, function: str, e: CTree) -> bool:
        """Whether to round an expression by one of these functions changes nothing."""
        return function in ROUNDED and ROUNDED[function] in self.holds(e)

    def is_mild(self, e: CTree) -> bool:
        """Whether the lower half of an expression's bits is zero wherever it is a NaN.

        Arithmetic gives the NaN it was given, made quiet, or else one of which only the upper bits
        are set.
        """
        if self.number(e) is not None or "bf16" in self.holds(e):
            return True
        match e:
            case CName(text):
                return self._is_mild.get(text, False)
            case CCast("float", value) | CUnary("-", value) | CCall("fabsf" | "sqrtf", (value,)):
                return self.is_mild(value)
            case (
                CChoice(_, a, b)
                | CCall("tr_chosen_f32", (_, a, b))
                | CBinary("+" | "-" | "*" | "/", a, b)
            ):
                return self.is_mild(a) and self.is_mild(b)
            case CCall(function, (a, b)) if function in ONE_OF:
                return self.is_mild(a) and self.is_mild(b)
        return False

    def number(self, e: CTree) -> float | None:
        """The value of an expression that is a literal and no NaN; None if it is none."""
        match e:
            case CName(text) if text not in self._holds:
                return self.numbers.get(text)
            case CCast("float" | "double", value):
                return self.number(value)
            case CUnary("-", value):
                number = self.number(value)
                return None if number is None else -number
            case CNumber(text):
                return _value(text)
        return None


_POWERS = frozenset(2.0**k for k in range(64))


def _value(text: str) -> float | None:
    try:
        return (
            float.fromhex(text.rstrip("fF")) if text.startswith("0x") else float(text.rstrip("fF"))
        )
    except ValueError:
        return None


def _has(kind: str, number: float) -> bool:
    """Whether a number is one of a narrow type."""
    try:
        if kind == "f16":
            return bool(struct.unpack("<e", struct.pack("<e", number))[0] == number)
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        return (
            bool(struct.unpack("<f", struct.pack("<f", number))[0] == number) and not bits & 0xFFFF
        )
    except OverflowError:
        return False
