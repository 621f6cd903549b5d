"""How many random examples a test looks at: few in the default run, more where there is time.

make test        two thirds of what the tests say: 12 minutes are what a contributor waits
make exhaustive  five times what they say, of the same fixed seed: they begin with the same ones
make explore     five times what they say, of fresh seeds
"""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""What Hypothesis tries by default, and so what the profile of the default run says."""
IS_QUICK = settings().max_examples <= USUAL


def examples(count: int) -> int:
    """Two thirds of `count`, or as many more as the profile has more than usual."""
    return max(count * 2 // 3, 1) if IS_QUICK else count * settings().max_examples // USUAL
