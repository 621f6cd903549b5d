"""Options and markers shared by all tests."""

from __future__ import annotations

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


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
