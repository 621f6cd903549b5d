"""How many random examples a test looks at: few in the default run, more where there is time.

make test        two thirds of what the tests say: 12 minutes are what a contributor waits
make exhaustive  five times what they say, of the same fixed seed: they begin with the same ones
make explore     five times what they say, of fresh seeds
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import seed, settings

USUAL = 100
"""What Hypothesis tries by default, and so what the profile of the default run says."""
IS_QUICK = settings().max_examples <= USUAL


def examples(count: int) -> int:
    """Two thirds of `count`, or as many more as the profile has more than usual."""
    return max(count * 2 // 3, 1) if IS_QUICK else count * settings().max_examples // USUAL


def until(is_enough: Callable[[], object], test: Callable[[], None], tries: int = 12) -> bool:
    """Run a test on random programs, with other seeds if need be, until enough was seen.

    Which programs Hypothesis draws depends on constants of all modules that are loaded.
    """
    test()
    for number in range(tries):
        if is_enough():
            return True
        seed(number)(test)()
    return bool(is_enough())
