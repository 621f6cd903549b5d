"""Options and markers shared by all tests."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# One profile for everyone: what fails here fails the same way on the next machine.
settings.register_profile(
    "treadle", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# Five times as many examples: of the same seed for `make exhaustive`, fresh ones to explore.
settings.register_profile("thorough", settings.get_profile("treadle"), max_examples=500)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "treadle"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden files instead of comparing"
    )


@pytest.fixture(autouse=True, scope="module")
def what_is_there_is_not_looked_through() -> None:
    """Let the collector look at what a file's tests make, not at all that was imported before.

    With torch and every test loaded a full collection takes a second, and some tests ask for one.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
