"""What the values of a loop are on whole vectors: floats side by side, conditions, or one for all.

v1 * v3                   ->  v1 * v3                    a vector times a vector, or a number
tr_vector_exp(v2)         ->  TR_LANES_OF(exp)(v2)
p0[(768 * i0 + r0)]       ->  tr_w_load(p0 + (768 * i0 + r0))     side by side along r0
(uint8_t)(v1 < v2)        ->  (v1 < v2)                  a condition for each lane
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from treadle.codegen.c.fast_ops import FAST, LIBRARY, VECTOR
from treadle.codegen.c.lines import (
    CBinary,
    CCall,
    CCast,
    CChoice,
    CElement,
    CName,
    CNumber,
    CTree,
    CUnary,
    written,
)
from treadle.codegen.c.narrow_values import NarrowValues


class LaneKind(Enum):
    """How many values there are, and of what."""

    VECTOR = "floats side by side"
    FLAGS = "conditions side by side"
    BYTES = "bytes side by side, of which only zero or not is asked"
    FLOAT = "one float for all"
    FLAG = "one condition for all"
    BYTE = "one byte for all, of which only zero or not is asked"
    NUMBER = "a literal, or an infinity"
    SMALL = "whole numbers of 8 bits side by side, each in 32"
    DOUBLE = "doubles side by side, of which only what they are as floats is asked"
    COUNT = "conditions side by side, as numbers that are only added up"


SIDE_BY_SIDE = frozenset(
    {
        LaneKind.VECTOR,
        LaneKind.FLAGS,
        LaneKind.BYTES,
        LaneKind.SMALL,
        LaneKind.DOUBLE,
        LaneKind.COUNT,
    }
)
CONDITION = "condition"
"""The type of what is declared as a byte and is 0 or 1."""
KIND_OF: Mapping[str, LaneKind] = {
    "float": LaneKind.FLOAT,
    "uint8_t": LaneKind.BYTE,
    CONDITION: LaneKind.FLAG,
}
"""Variables that stand outside of the loop, by their C type."""
LIMITS = frozenset({"INFINITY", "NAN"})
COMPARISONS = frozenset({"<", ">", "<=", ">=", "==", "!="})
LOGIC = {"&&": "&", "||": "|", "&": "&", "|": "|"}
NAME = re.compile(r"[va]\d+\w*")
"""What holds a float, if it is a number at all."""
HERE = "@"
"""Behind the name of what loads or stores: all lanes, or those that are left (`for_rest`)."""
PLAIN = {
    "fabsf": "tr_w_abs",
    "sqrtf": "tr_w_sqrt",
    "nearbyintf": "tr_w_nearbyint",
    "floorf": "tr_w_floor",
    "ceilf": "tr_w_ceil",
    "truncf": "tr_w_trunc",
    "tr_maximum_f32": "tr_w_maximum",
    "tr_minimum_f32": "tr_w_minimum",
    "tr_round_bf16": "tr_w_round_bf16",
    "tr_round_f16": "tr_w_round_f16",
    "tr_round_f8e4m3fn": "tr_w_round_f8e4m3fn",
    "tr_round_f8e5m2": "tr_w_round_f8e5m2",
}
"""Functions of floats -> their form on vectors."""
LIMITED = {"tr_maximum_f32": "tr_w_at_least", "tr_minimum_f32": "tr_w_at_most"}
"""The same where the second operand is known, and no NaN; `_nonzero` where it is no zero either."""
SMALL = {"int8_t": "tr_w_i8", "uint8_t": "tr_w_u8"}
"""The last 8 bits as what they are in such a type."""
LOADED = {"int8_t": "tr_w_load_i8", "uint8_t": "tr_w_load_u8"}
"""How such numbers are read from memory."""
DECODED = {
    "tr_decode_bf16": ("uint16_t", "tr_w_load_bf16"),
    "tr_decode_f16": ("uint16_t", "tr_w_load_f16"),
    "tr_decode_f8e4m3fn": ("uint8_t", "tr_w_load_f8e4m3fn"),
    "tr_decode_f8e5m2": ("uint8_t", "tr_w_load_f8e5m2"),
}
"""What reads a narrow float: from elements of which type, and how side by side."""


class UnwritableError(Exception):
    """There is no form on whole vectors."""


def _as_float(text: str) -> str:
    return text if text.startswith("((float)") or NAME.fullmatch(text) else f"((float){text})"


def is_condition(e: CTree, conditions: Collection[str]) -> bool:
    """Whether a value is 0 or 1, for all that is known of the names in it."""
    match e:
        case CName(text):
            return text in conditions
        case CNumber(text):
            return text in ("0", "1")
        case CCast("uint8_t", value):
            return is_condition(value, conditions)
        case CUnary("!", _):
            return True
        case CBinary("&" | "|", left, right):
            return is_condition(left, conditions) and is_condition(right, conditions)
        case CBinary(op, _, _):
            return op in COMPARISONS or op in ("&&", "||")
        case CChoice(_, one, other):
            return is_condition(one, conditions) and is_condition(other, conditions)
    return False


@dataclass(frozen=True)
class LaneValue:
    """What an expression is on whole vectors."""

    kind: LaneKind
    text: str

    @property
    def vector(self) -> str:
        """As floats side by side."""
        if self.kind is LaneKind.VECTOR:
            return self.text
        if self.kind in (LaneKind.FLOAT, LaneKind.NUMBER):
            return f"tr_w_all({self.text})"
        raise UnwritableError(self.text)

    @property
    def flags(self) -> str:
        """As conditions side by side."""
        if self.kind is LaneKind.FLAGS:
            return self.text
        if self.kind is LaneKind.FLAG:
            return f"tr_w_is({self.text})"
        raise UnwritableError(self.text)

    @property
    def operand(self) -> str:
        """As an operand beside a vector: a number stands for all."""
        if self.kind is LaneKind.VECTOR:
            return self.text
        if self.kind in (LaneKind.FLOAT, LaneKind.NUMBER):
            return _as_float(self.text)
        raise UnwritableError(self.text)


def _asked(value: LaneValue) -> LaneValue:
    """Whether a condition holds, or a byte is not zero."""
    if value.kind is LaneKind.BYTE:
        return LaneValue(LaneKind.FLAG, f"({value.text} != 0)")
    return LaneValue(LaneKind.FLAG if value.kind is LaneKind.FLAG else LaneKind.FLAGS, value.text)


class LaneValues:
    """The values of one loop, as its lines are read one after the other."""

    def __init__(
        self,
        types: Mapping[str, str],
        numbers: Mapping[str, float],
        variable: str,
        states: Collection[str],
    ) -> None:
        self.types = types
        """The C types of what stands outside: variables, and elements of what pointers lead to."""
        self.states = states
        """What the loop combines: of no use before its end."""
        self.known: dict[str, LaneKind] = {}
        """Values of this loop."""
        self.narrow = NarrowValues(numbers)
        self.rows: Mapping[str, tuple[str, str]] = {}
        """Rows of floats that are not made -> type and place of what they would hold."""
        self.scanned: dict[str, LaneValue] = {}
        """States of scans -> what they are at each lane."""
        self.may_turn = False
        """Whether what lies side by side the other way round may be loaded, too."""
        self.has_places = False
        """Whether anything but bf16 tells one lane from another: their order is that of memory."""
        self.steps: dict[str, int | None] = {variable: 1}
        """Whole numbers of this loop: by how much they grow from point to point, if they do so."""
        self.short: set[str] = set()
        """Those of 32 bits."""

    # -- whole numbers ---------------------------------------------------------------------
    def step(self, e: CTree) -> int | None:
        """By how much a whole number grows from point to point; None if that cannot be said."""
        match e:
            case CNumber():
                return 0
            case CName(text):
                return None if text in self.known else self.steps.get(text, 0)
            case CCast(to, value) if to in ("int64_t", "int32_t"):
                return self.step(value)
            case CUnary("-", value):
                own = self.step(value)
                return None if own is None else -own
            case CBinary(op, left, right):
                return self._step_of_two(op, self.step(left), self.step(right), e)
            case CElement(_, index, _):
                return 0 if self.step(index) == 0 else None
            case CCall(_, args):
                return 0 if all(self.step(a) == 0 for a in args) else None
            case CChoice(a, b, c):
                return 0 if all(self.step(x) == 0 for x in (a, b, c)) else None
            case _:
                return None

    def _step_of_two(self, op: str, a: int | None, b: int | None, e: CBinary) -> int | None:
        if a is None or b is None:
            return None
        if a == b == 0:
            return 0
        if op in "+-":
            return a + b if op == "+" else a - b
        factor = e.left if a == 0 else e.right
        if op == "*" and 0 in (a, b) and isinstance(factor, CNumber) and factor.text.isdigit():
            return (a + b) * int(factor.text)
        return None

    def touches_vectors(self, e: CTree) -> bool:
        """Whether a value of this loop that lies side by side is part of an expression."""
        match e:
            case CName(text):
                return self.known.get(text) in SIDE_BY_SIDE
            case CNumber():
                return False
            case CElement(_, index, _):
                return self.touches_vectors(index)
            case CCall(_, args):
                return any(map(self.touches_vectors, args))
            case CCast(_, value) | CUnary(_, value):
                return self.touches_vectors(value)
            case CBinary(_, left, right):
                return self.touches_vectors(left) or self.touches_vectors(right)
            case CChoice(a, b, c):
                return any(map(self.touches_vectors, (a, b, c)))

    def _short(self, e: CTree) -> str | None:
        """A whole number of 32 bits at all lanes, or one for all; None if it is none."""
        match e:
            case CName(text) if text in self.short or self.types.get(text) == "int32_t":
                step = self.step(e)
            case CCast("int32_t", value) if not self.touches_vectors(value):
                step = self.step(value)
            case _:
                return None
        if step is None:
            raise UnwritableError(written(e))
        self.has_places |= step != 0
        return f"tr_w_places({written(e)}, {step})" if step else written(e)

    def _compared(self, op: str, left: CTree, right: CTree) -> LaneValue | None:
        """A comparison of whole numbers of 32 bits; None if they are something else."""
        a, b = self._short(left), self._short(right)
        if a is None or b is None:
            return None
        is_one = self.step(left) == self.step(right) == 0
        text = f"({a} {op} {b})"
        return LaneValue(
            LaneKind.FLAG if is_one else LaneKind.FLAGS, text if is_one else f"(tr_wi){text}"
        )

    # -- floats and conditions -------------------------------------------------------------
    def value(self, e: CTree) -> LaneValue:
        """An expression on whole vectors; raises UnwritableError if it has no such form."""
        if self.scanned and (found := self.scanned.get(written(e))) is not None:
            return found
        match e:
            case CNumber(text):
                return LaneValue(LaneKind.NUMBER, text)
            case CName(text):
                return self._name(text)
            case CElement():
                return self._element(e)
            case CCast(to, inner):
                return self._cast(to, self.value(inner))
            case CUnary(op, inner):
                return self._unary(op, self.value(inner))
            case CBinary(op, left, right):
                found = self._compared(op, left, right) if op in COMPARISONS else None
                return found or self._binary(op, self.value(left), self.value(right))
            case CChoice(a, b, c):
                return self._choice(self.value(a), self.value(b), self.value(c))
            case CCall(function, args):
                return self._call(function, args)

    def _name(self, text: str) -> LaneValue:
        if text in LIMITS:
            return LaneValue(LaneKind.NUMBER, text)
        kind = self.known.get(text) or KIND_OF.get(self.types.get(text, ""))
        if kind is None or text in self.steps or text in self.states:
            raise UnwritableError(text)
        return LaneValue(kind, text)

    def _element(self, e: CElement) -> LaneValue:
        if e.base in self.states:
            raise UnwritableError(e.text)
        kind, step = self.types.get(e.base), self.step(e.index)
        if e.base in self.rows:
            if step != 1:
                raise UnwritableError(e.text)
            self.has_places = True
            kind, place = self.rows[e.base]
            return LaneValue(LaneKind.VECTOR, f"tr_w_load_{kind}{HERE}({place} + {e.text})")
        if step == -1 and kind == "float" and self.may_turn:
            return LaneValue(LaneKind.VECTOR, f"tr_w_load_back{HERE}({e.base} + {e.text})")
        if step == 2 and kind == "float":
            self.has_places = True
            return LaneValue(LaneKind.VECTOR, f"tr_w_load_every_other{HERE}({e.base} + {e.text})")
        if step not in (0, 1) or kind not in ("float", "uint8_t"):
            raise UnwritableError(e.text)
        if step == 0:
            return LaneValue(KIND_OF[kind], f"{e.base}[{e.text}]")
        self.has_places = True
        if kind == "float":
            return LaneValue(LaneKind.VECTOR, f"tr_w_load{HERE}({e.base} + {e.text})")
        return LaneValue(LaneKind.BYTES, f"tr_w_flags{HERE}({e.base} + {e.text})")

    def small(self, e: CTree) -> LaneValue | None:
        """Whole numbers of 8 bits that lie side by side in memory; None if it is something else."""
        kind = self.types.get(e.base, "") if isinstance(e, CElement) else ""
        if not isinstance(e, CElement) or kind not in LOADED or self.step(e.index) != 1:
            return None
        self.has_places = True
        return LaneValue(LaneKind.SMALL, f"{LOADED[kind]}{HERE}({e.base} + {e.text})")

    def _cast(self, to: str, value: LaneValue) -> LaneValue:
        is_one = value.kind in (LaneKind.FLOAT, LaneKind.NUMBER)
        if to == "float" and (value.kind is LaneKind.VECTOR or is_one):
            return LaneValue(LaneKind.FLOAT, _as_float(value.text)) if is_one else value
        if to == "float" and value.kind is LaneKind.FLAGS:
            return LaneValue(
                LaneKind.VECTOR, f"tr_w_where({value.text}, tr_w_all(1.0f), tr_w_all(0.0f))"
            )
        if to == "double" and value.kind in (LaneKind.VECTOR, LaneKind.DOUBLE):
            return LaneValue(LaneKind.DOUBLE, value.text)
        if to == "float" and value.kind is LaneKind.DOUBLE:
            return LaneValue(LaneKind.VECTOR, value.text)
        if to == "float" and value.kind is LaneKind.SMALL:
            return LaneValue(LaneKind.VECTOR, f"__builtin_convertvector({value.text}, tr_w)")
        if to in SMALL and value.kind is LaneKind.SMALL:
            return LaneValue(LaneKind.SMALL, f"{SMALL[to]}({value.text})")
        if to == "double" and value.kind is LaneKind.NUMBER:
            return LaneValue(LaneKind.NUMBER, f"((double){value.text})")
        if to == "uint8_t" and value.kind in (LaneKind.FLAGS, LaneKind.FLAG):
            return value
        if to in ("int64_t", "uint64_t") and value.kind in (LaneKind.FLAGS, LaneKind.COUNT):
            return LaneValue(LaneKind.COUNT, value.text)
        raise UnwritableError(f"({to}){value.text}")

    def _unary(self, op: str, value: LaneValue) -> LaneValue:
        if op == "-" and value.kind in (LaneKind.VECTOR, LaneKind.FLOAT, LaneKind.NUMBER):
            return LaneValue(value.kind, f"(-{value.text})")
        if op == "!" and value.kind is LaneKind.FLAGS:
            return LaneValue(LaneKind.FLAGS, f"(~{value.text})")
        if op == "!" and value.kind in (LaneKind.FLAG, LaneKind.BYTE):
            return LaneValue(LaneKind.FLAG, f"(!{value.text})")
        raise UnwritableError(f"{op}{value.text}")

    def _binary(self, op: str, a: LaneValue, b: LaneValue) -> LaneValue:
        if op in LOGIC:
            if op in ("&&", "||"):
                raw = (LaneKind.BYTE, LaneKind.BYTES)
                a, b = [_asked(v) if v.kind in raw else v for v in (a, b)]
            return self._logic(op, a, b)
        if (
            op in ("==", "!=")
            and b.text == "0"
            and a.kind in (LaneKind.FLAGS, LaneKind.BYTES, LaneKind.FLAG, LaneKind.BYTE)
        ):
            found = _asked(a)
            return found if op == "!=" else self._unary("!", found)
        if LaneKind.VECTOR not in (a.kind, b.kind):
            known = {LaneKind.FLOAT, LaneKind.NUMBER}
            if not {a.kind, b.kind} <= known:
                raise UnwritableError(op)
            kind = LaneKind.FLAG if op in COMPARISONS else LaneKind.FLOAT
            return LaneValue(kind, f"({a.text} {op} {b.text})")
        if op in COMPARISONS:
            return LaneValue(LaneKind.FLAGS, f"(tr_wi)({a.operand} {op} {b.operand})")
        if op in "+-*/":
            return LaneValue(LaneKind.VECTOR, f"({a.operand} {op} {b.operand})")
        raise UnwritableError(op)

    def _logic(self, op: str, a: LaneValue, b: LaneValue) -> LaneValue:
        if a.kind is b.kind is LaneKind.FLAG:
            return LaneValue(LaneKind.FLAG, f"({a.text} {op} {b.text})")
        return LaneValue(LaneKind.FLAGS, f"({a.flags} {LOGIC[op]} {b.flags})")

    def _choice(self, condition: LaneValue, one: LaneValue, other: LaneValue) -> LaneValue:
        if condition.kind is LaneKind.FLAGS:
            return LaneValue(
                LaneKind.VECTOR, f"tr_w_where({condition.text}, {one.vector}, {other.vector})"
            )
        if condition.kind not in (LaneKind.FLAG, LaneKind.BYTE):
            raise UnwritableError(condition.text)
        if LaneKind.VECTOR in (one.kind, other.kind):
            return LaneValue(LaneKind.VECTOR, f"({condition.text} ? {one.vector} : {other.vector})")
        return LaneValue(LaneKind.FLOAT, f"({condition.text} ? {one.operand} : {other.operand})")

    def _call(self, function: str, args: tuple[CTree, ...]) -> LaneValue:
        if function in DECODED:
            return self._decoded(function, args[0])
        given = [self.value(a) for a in args]
        if function == "tr_to_8_bits":
            return LaneValue(LaneKind.SMALL, f"tr_w_to_8_bits({given[0].vector})")
        if function == "tr_chosen_f32":
            return self._choice(*given)
        if self.narrow.keeps(function, args[0]):
            if not self.narrow.is_doubled(args[0]):
                return given[0]
            if given[0].kind is LaneKind.VECTOR:
                return LaneValue(LaneKind.VECTOR, f"tr_w_apart({given[0].text})")
        own = function.removeprefix(f"tr_{VECTOR}")
        has_form = own != function and (own in FAST or own in LIBRARY)
        if not has_form and function not in PLAIN:
            raise UnwritableError(function)
        if all(v.kind in (LaneKind.FLOAT, LaneKind.NUMBER) for v in given):
            return LaneValue(LaneKind.FLOAT, f"{function}({', '.join(v.text for v in given)})")
        name = PLAIN.get(function) or f"TR_LANES_OF({own})"
        if function == "tr_round_bf16" and self.narrow.is_mild(args[0]):
            name = "tr_w_round_mild_bf16"
        if function in LIMITED and (limit := self.narrow.number(args[1])) is not None:
            name = LIMITED[function] if limit == 0 else f"{LIMITED[function]}_nonzero"
        return LaneValue(LaneKind.VECTOR, f"{name}({', '.join(v.vector for v in given)})")

    def _decoded(self, function: str, e: CTree) -> LaneValue:
        kind, load = DECODED[function]
        if not isinstance(e, CElement) or self.types.get(e.base) != kind:
            raise UnwritableError(function)
        step = self.step(e.index)
        if step == 0:
            return LaneValue(LaneKind.FLOAT, f"{function}({e.base}[{e.text}])")
        if step != 1:
            raise UnwritableError(e.text)
        self.has_places |= function != "tr_decode_bf16"
        return LaneValue(LaneKind.VECTOR, f"{load}{HERE}({e.base} + {e.text})")
