"""The operations a loop body may contain, as one table.

Every row says how many values the operation takes, what element types it accepts, the type of its
result, how much work it is, and what it computes. Interpreter, verifier, cost model and code
generators are tables over the same names; tests check that each of them is total.

Result rules: `same` the promoted type of the operands; `float` the same, integers become f32;
`bool`; `attr` the type given as attribute; `first` the first operand's, made floating; `own`
decided by the operation itself in `typing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Family(Enum):
    """What kind of thing an operation does."""

    POINTWISE = "pointwise"
    CONVERT = "convert"
    INDEX = "index"
    MEMORY = "memory"
    REDUCE = "reduce"
    RANDOM = "random"
    CONTROL = "control"


@dataclass(frozen=True)
class OpDef:
    """One operation: its name, operands, attributes, typing, work and meaning."""

    name: str
    arity: int | None
    result: str
    accepts: str
    work: float
    doc: str
    family: Family = Family.POINTWISE
    attrs: tuple[str, ...] = ()
    produces: bool = True
    has_region: bool = False
    position: Mapping[str, int] = field(init=False, compare=False, repr=False)
    """Where each attribute stands among a statement's."""

    def __post_init__(self) -> None:
        places = {name: place for place, name in enumerate(self.attrs)}
        object.__setattr__(self, "position", places)


def _pointwise(rows: str) -> dict[str, OpDef]:
    table = {}
    for row in rows.strip().splitlines():
        name, arity, result, accepts, work, doc = (c.strip() for c in row.split("|", 5))
        table[name] = OpDef(name, int(arity), result, accepts, float(work), doc)
    return table


# name | operands | result | accepts | work | meaning
POINTWISE = _pointwise("""
identity         | 1 | same  | any     | 0  | x
add              | 2 | same  | any     | 1  | a + b; on bools: a or b
sub              | 2 | same  | number  | 1  | a - b
mul              | 2 | same  | any     | 1  | a * b; on bools: a and b
fma              | 3 | same  | number  | 1  | a * b + c, rounded once
maximum          | 2 | same  | any     | 1  | the larger; NaN if either is NaN
minimum          | 2 | same  | any     | 1  | the smaller; NaN if either is NaN
neg              | 1 | same  | number  | 1  | -x
abs              | 1 | same  | any     | 1  | the size of x without its sign
square           | 1 | same  | number  | 1  | x * x
relu             | 1 | same  | number  | 1  | max(x, 0), NaN stays
sign             | 1 | same  | any     | 1  | -1, 0 or 1; NaN gives 0, as in torch
truediv          | 2 | float | any     | 4  | a / b
int_truediv      | 2 | float | any     | 4  | a / b of integers, as torch divides them
floordiv         | 2 | same  | number  | 4  | a / b rounded down; of whole numbers by zero: 0
truncdiv         | 2 | same  | number  | 4  | a / b rounded towards zero
fmod             | 2 | same  | number  | 4  | remainder with the sign of a
remainder        | 2 | same  | number  | 4  | remainder with the sign of b
pow              | 2 | same  | number  | 20 | a to the power b
reciprocal       | 1 | float | any     | 4  | 1 / x
floor            | 1 | same  | number  | 1  | rounded down
ceil             | 1 | same  | number  | 1  | rounded up
trunc            | 1 | same  | number  | 1  | rounded towards zero
round            | 1 | same  | number  | 1  | rounded to nearest, halves to even
eq               | 2 | bool  | any     | 1  | a == b
ne               | 2 | bool  | any     | 1  | a != b
lt               | 2 | bool  | any     | 1  | a < b
le               | 2 | bool  | any     | 1  | a <= b
gt               | 2 | bool  | any     | 1  | a > b
ge               | 2 | bool  | any     | 1  | a >= b
isnan            | 1 | bool  | any     | 1  | x is not a number
isinf            | 1 | bool  | any     | 1  | x is plus or minus infinity
isfinite         | 1 | bool  | any     | 1  | x is neither infinite nor NaN
signbit          | 1 | bool  | any     | 1  | the sign bit is set
logical_and      | 2 | bool  | any     | 1  | both are nonzero
logical_or       | 2 | bool  | any     | 1  | at least one is nonzero
logical_xor      | 2 | bool  | any     | 1  | exactly one is nonzero
logical_not      | 1 | bool  | any     | 1  | x is zero
bitwise_and      | 2 | same  | whole   | 1  | bits set in both
bitwise_or       | 2 | same  | whole   | 1  | bits set in either
bitwise_xor      | 2 | same  | whole   | 1  | bits set in exactly one
bitwise_not      | 1 | same  | whole   | 1  | all bits flipped
bitwise_left_shift  | 2 | same | int   | 1  | a shifted left by b bits; 0 if b leaves the width
bitwise_right_shift | 2 | same | int   | 1  | a shifted right by b bits, arithmetic
gcd              | 2 | same  | int     | 40 | greatest common divisor
sqrt             | 1 | float | any     | 4  | square root
rsqrt            | 1 | float | any     | 4  | 1 / square root
exp              | 1 | float | any     | 10 | e to the x
exp2             | 1 | float | any     | 10 | 2 to the x
expm1            | 1 | float | any     | 12 | e to the x, less 1
log              | 1 | float | any     | 10 | natural logarithm
log2             | 1 | float | any     | 10 | logarithm to base 2
log10            | 1 | float | any     | 10 | logarithm to base 10
log1p            | 1 | float | any     | 12 | log(1 + x)
sin              | 1 | float | any     | 15 | sine
cos              | 1 | float | any     | 15 | cosine
tan              | 1 | float | any     | 20 | tangent
asin             | 1 | float | any     | 20 | inverse sine
acos             | 1 | float | any     | 20 | inverse cosine
atan             | 1 | float | any     | 20 | inverse tangent
sinh             | 1 | float | any     | 20 | hyperbolic sine
cosh             | 1 | float | any     | 20 | hyperbolic cosine
tanh             | 1 | float | any     | 15 | hyperbolic tangent
asinh            | 1 | float | any     | 25 | inverse hyperbolic sine
acosh            | 1 | float | any     | 25 | inverse hyperbolic cosine
atanh            | 1 | float | any     | 25 | inverse hyperbolic tangent
atan2            | 2 | float | any     | 25 | angle of the point (b, a)
hypot            | 2 | float | any     | 10 | sqrt(a*a + b*b) without overflow
copysign         | 2 | float | any     | 1  | size of a, sign of b
nextafter        | 2 | float | any     | 4  | the next value from a towards b
ldexp            | 2 | first | any     | 2  | a * 2**b, in the type of a (f32 if that is whole)
sigmoid          | 1 | float | any     | 12 | 1 / (1 + exp(-x))
erf              | 1 | float | any     | 15 | error function
gelu_tilt        | 1 | float | any     | 15 | derivative of gelu at x, less a half
gelu_gate        | 1 | float | any     | 15 | gelu(x) / x: ndtr, where far below zero nothing counts
gelu_slope       | 1 | float | any     | 18 | derivative of gelu at x
erfc             | 1 | float | any     | 18 | 1 - erf(x)
erfcx            | 1 | float | any     | 20 | exp(x*x) * erfc(x)
erfinv           | 1 | float | any     | 25 | inverse error function
lgamma           | 1 | float | any     | 30 | logarithm of the size of gamma(x)
digamma          | 1 | float | any     | 30 | derivative of lgamma
polygamma        | 2 | float | any     | 60 | derivative of order a+1 of lgamma at b
zeta             | 2 | float | any     | 60 | Hurwitz zeta function
gammainc         | 2 | float | any     | 60 | regularised lower incomplete gamma function
gammaincc        | 2 | float | any     | 60 | regularised upper incomplete gamma function
ndtr             | 1 | float | any     | 18 | standard normal distribution function
ndtri            | 1 | float | any     | 25 | inverse of ndtr
log_ndtr         | 1 | float | any     | 25 | log of ndtr
i0               | 1 | float | any     | 30 | modified Bessel function of the first kind, order 0
i0e              | 1 | float | any     | 30 | exp(-|x|) * i0(x)
i1               | 1 | float | any     | 30 | modified Bessel function of the first kind, order 1
i1e              | 1 | float | any     | 30 | exp(-|x|) * i1(x)
modified_bessel_i0 | 1 | float | any   | 30 | same as i0
modified_bessel_i1 | 1 | float | any   | 30 | same as i1
modified_bessel_k0 | 1 | float | any   | 30 | modified Bessel function of the second kind, order 0
modified_bessel_k1 | 1 | float | any   | 30 | modified Bessel function of the second kind, order 1
scaled_modified_bessel_k0 | 1 | float | any | 30 | exp(x) * modified_bessel_k0(x)
scaled_modified_bessel_k1 | 1 | float | any | 30 | exp(x) * modified_bessel_k1(x)
bessel_j0        | 1 | float | any     | 30 | Bessel function of the first kind, order 0
bessel_j1        | 1 | float | any     | 30 | Bessel function of the first kind, order 1
bessel_y0        | 1 | float | any     | 30 | Bessel function of the second kind, order 0
bessel_y1        | 1 | float | any     | 30 | Bessel function of the second kind, order 1
spherical_bessel_j0 | 1 | float | any  | 20 | sin(x) / x
airy_ai          | 1 | float | any     | 40 | Airy function Ai
chebyshev_polynomial_t | 2 | float | any | 30 | Chebyshev polynomial of the first kind, degree b
chebyshev_polynomial_u | 2 | float | any | 30 | Chebyshev polynomial of the second kind, degree b
chebyshev_polynomial_v | 2 | float | any | 30 | Chebyshev polynomial of the third kind, degree b
chebyshev_polynomial_w | 2 | float | any | 30 | Chebyshev polynomial of the fourth kind, degree b
shifted_chebyshev_polynomial_t | 2 | float | any | 30 | chebyshev_polynomial_t at 2*a - 1
shifted_chebyshev_polynomial_u | 2 | float | any | 30 | chebyshev_polynomial_u at 2*a - 1
shifted_chebyshev_polynomial_v | 2 | float | any | 30 | chebyshev_polynomial_v at 2*a - 1
shifted_chebyshev_polynomial_w | 2 | float | any | 30 | chebyshev_polynomial_w at 2*a - 1
hermite_polynomial_h  | 2 | float | any | 30 | physicist's Hermite polynomial, degree b
hermite_polynomial_he | 2 | float | any | 30 | probabilist's Hermite polynomial, degree b
laguerre_polynomial_l | 2 | float | any | 30 | Laguerre polynomial, degree b
legendre_polynomial_p | 2 | float | any | 30 | Legendre polynomial, degree b
frexp            | 1 | own   | float   | 4  | (mantissa in [0.5, 1), exponent as i32)
where            | 3 | own   | any     | 1  | b where a is true, else c
""")


def _structured(rows: str) -> dict[str, OpDef]:
    table = {}
    for row in rows.strip().splitlines():
        cells = [c.strip() for c in row.split("|", 7)]
        name, arity, result, accepts, work, family, attrs, doc = cells
        flags = {w for w in attrs.split() if w.startswith("!")}
        table[name] = OpDef(
            name=name,
            arity=None if arity == "*" else int(arity),
            result=result,
            accepts=accepts,
            work=float(work),
            doc=doc,
            family=Family(family),
            attrs=tuple(w for w in attrs.split() if w not in flags),
            produces="!silent" not in flags,
            has_region="!region" in flags,
        )
    return table


# name | operands (* any number) | result | accepts | work | family | attributes | meaning
# !silent: produces no value      !region: owns a region of statements
STRUCTURED = _structured("""
constant     | 0 | attr | any   | 0  | convert | value dtype | a literal
cast         | 1 | attr | any   | 1  | convert | dtype | x converted to another type
bitcast      | 1 | attr | any   | 0  | convert | dtype | the bits of x read as another type
floor_to_int | 1 | attr | any   | 2  | convert | dtype | x rounded down to an integer
ceil_to_int  | 1 | attr | any   | 2  | convert | dtype | x rounded up to an integer
trunc_to_int | 1 | attr | any   | 2  | convert | dtype | x rounded towards zero to an integer
round_to_int | 1 | attr | any   | 2  | convert | dtype | the nearest integer, halves to even
index        | 0 | attr | any   | 1  | index   | expr dtype | an index expression as a value
indirect     | 1 | own  | whole | 1  | index   | size wrap check | x made usable in index expressions; wrap adds size to negative values, check demands 0 <= x < size
load         | 0 | own  | any   | 0  | memory  | buffer index unproven | an element
store        | 1 | own  | any   | 0  | memory  | buffer index mode unproven !silent | write an element, converted to the buffer's type; modes other than plain combine with what is there, once per point of the iteration loops, and along the reduction loops too if value or index varies there
bucketize    | 1 | attr | any   | 20 | memory  | buffer size right dtype | the position of x among the sorted boundaries held in a buffer (size elements from its offset, in steps of its last stride)
reduce       | * | own  | any   | 1  | reduce  | kind dtype | combine over the reduction loops
reduce_part  | * | own  | any   | 1  | reduce  | kind dtype over | combine over the inner loops in `over`, the position in what is combined; the result varies along the other inner loops; in kernels only
scan         | * | own  | any   | 2  | reduce  | combine !region | running combination along the reduction loops
sort         | * | own  | any   | 20 | reduce  | descending stable | sort by the first operand along the reduction loops, the others move along
rand         | 2 | attr | whole | 30 | random  | dtype | uniform in [0, 1) from (seed, offset)
randn        | 2 | attr | whole | 40 | random  | dtype | standard normal from (seed, offset)
randint      | 4 | attr | whole | 30 | random  | dtype | integer in [low, high) from (seed, offset, low, high)
get          | 1 | own  | any   | 0  | control | position | one of several results
masked       | 1 | own  | bool  | 1  | control | other !region | the region's value where x is true, else `other`; loads in the region happen only there
param        | 0 | own  | any   | 0  | control | position | an argument of the enclosing region
yield        | * | own  | any   | 0  | control | !silent | the results of the region
assert       | 1 | own  | bool  | 1  | control | message !silent | stop with a message unless x
inline_asm   | * | attr | any   | 4  | control | asm constraints dtype is_pure pack | target assembly, opaque to Treadle
""")  # noqa: E501

OPS: dict[str, OpDef] = POINTWISE | STRUCTURED


@dataclass(frozen=True)
class ReduceDef:
    """One way to combine values over the reduction loops."""

    name: str
    operands: int
    results: int
    accepts: str
    doc: str


REDUCTIONS: dict[str, ReduceDef] = {
    d.name: d
    for d in (
        ReduceDef("sum", 1, 1, "any", "sum; bools count as i64"),
        ReduceDef("prod", 1, 1, "any", "product; bools count as i64"),
        ReduceDef("max", 1, 1, "any", "largest; NaN wins"),
        ReduceDef("min", 1, 1, "any", "smallest; NaN wins"),
        ReduceDef("argmax", 1, 1, "any", "position of the first largest (or first NaN), i64"),
        ReduceDef("argmin", 1, 1, "any", "position of the first smallest (or first NaN), i64"),
        ReduceDef("any", 1, 1, "any", "whether any is nonzero"),
        ReduceDef("all", 1, 1, "any", "whether all are nonzero"),
        ReduceDef("xor_sum", 1, 1, "whole", "exclusive or of all bits"),
        ReduceDef("dot", 2, 1, "any", "sum of products of the two operands"),
        ReduceDef("welford", 1, 3, "float", "(mean, sum of squared deviations, weight)"),
        ReduceDef("welford_combine", 3, 3, "float", "as welford, from partial triples"),
        ReduceDef("online_softmax", 1, 2, "float", "(max, sum of exp(x - max))"),
    )
}

SCAN_COMBINES: dict[str, str] = {
    "add": "running sum",
    "mul": "running product",
    "max": "running maximum",
    "min": "running minimum",
    "logaddexp": "running log of the sum of exponentials",
    "argmax": "running (maximum, position of its last occurrence), from (value, position)",
    "argmin": "running (minimum, position of its last occurrence), from (value, position)",
    "region": "whatever the region computes from the two partial results",
    "unknown": "in a way that a dump does not say: can be scheduled, cannot be run",
}

STORE_MODES: dict[str, str] = {
    "plain": "replace",
    "atomic_add": "add to what is there",
    "atomic_mul": "multiply what is there",
    "atomic_min": "keep the smaller",
    "atomic_max": "keep the larger",
    "atomic_and": "bitwise and with what is there",
    "atomic_or": "bitwise or with what is there",
    "atomic_xor": "bitwise exclusive or with what is there",
}
