"""How many random examples a test looks at: few in the default run, more where there is time.

make test        as many as the tests say
make exhaustive  five times as many, of the same fixed seed: they begin with the same ones
make explore     five times as many, of fresh seeds
"""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""What Hypothesis tries by default, and so what the profile of the default run says."""
IS_QUICK = settings().max_examples <= USUAL


def examples(count: int) -> int:
    """`count`, or as many more as the profile has more than usual."""
    return count * settings().max_examples // USUAL if not IS_QUICK else count
