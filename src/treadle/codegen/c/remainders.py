"""The parts of remainders.h that a unit needs, for each length of a vector of each type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from string import Template

REMAINDERS = frozenset({"fmod", "remainder"})
"""Functions of two floats that are written on whole vectors here; their results are exact."""
F64 = "f64_"
"""What the names of functions in double begin with."""
FORMS = {
    "": ("float", "int32_t", "f", (("b", 4), ("d", 8), ("e", 16))),
    F64: ("double", "int64_t", "", (("b", 2), ("d", 4), ("e", 8))),
}
"""The type, whole numbers as wide, the end of the C library's names, and how many a vector holds,
with the letters of the compiler's rules for names."""
WHERE = """\
#if defined(TR_HAS_VECTORS) && defined(FP_FAST_FMA)
#ifdef __AVX512F__
#define TR_DOUBLES 64
#else
#define TR_DOUBLES 32
#endif"""
PLAIN = Template("""\
#else
TR_FN $T tr_vector_${s}fmod($T a, $T b) { return fmod$f(a, b); }
TR_FN $T tr_vector_${s}remainder($T a, $T b) { return tr_remainder_$S(a, b); }
#endif""")
SINGLE = Template("""\
_Pragma("omp declare simd notinbranch")
__attribute__((const, nothrow)) $T tr_vector_$s$name($T a, $T b);
__attribute__((visibility("hidden"))) $T tr_vector_$s${name}_1($T a, $T b)
    __asm__("tr_vector_$s$name");
$T tr_vector_$s${name}_1($T a, $T b) { return $scalar(a, b); }""")


def remainders(wanted: Iterable[str], header: str) -> Iterator[str]:
    """The text for these functions (`fmod`, `f64_remainder`), of the header's template."""
    names = sorted(wanted)
    for start, (kind, whole, end, lengths) in FORMS.items():
        own = [n.removeprefix(F64) for n in names if n.startswith(F64) == bool(start)]
        if not own:
            continue
        suffix = "f64" if start else "f32"
        words = {"T": kind, "s": start, "f": end, "S": suffix}
        yield WHERE
        for isa, n in lengths:
            yield "#ifdef __AVX512F__" if isa == "e" else "#if 1"
            types = {x: f"tr_{x}{n}_{suffix}" for x in "vdli"}
            half = {"other": n // 2, "half": f"tr_v{n // 2}_{suffix}"}
            yield Template(header).substitute(words, n=n, isa=isa, whole=whole, **types, **half)
            yield from [f"TR_REMAINDER_{n}_{suffix}({name})" for name in own]
            yield "#endif"
        for name in own:
            scalar = f"fmod{end}" if name == "fmod" else f"tr_remainder_{suffix}"
            yield SINGLE.substitute(words, name=name, scalar=scalar)
        yield PLAIN.substitute(words)
