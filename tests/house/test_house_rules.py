"""The whole source tree keeps the house rules."""

import statistics
from collections.abc import Callable

import pytest
from house_names import SHARED_NAMES, shared_names
from house_rules import RULES
from house_state import ALLOWED_STATE, state_of
from house_tree import ABOVE_ALL, LAYERS, PACKAGE, all_modules

MEDIAN_LINES = 150


@pytest.mark.parametrize("rule", RULES)
def test_every_source_file_keeps_the_rule(rule: str) -> None:
    findings = [finding for module in all_modules() for finding in RULES[rule](module)]
    assert not findings, "\n".join([rule, *findings])


def test_the_tree_is_really_read() -> None:
    assert "core/errors.py" in {module.path for module in all_modules()}


def test_every_folder_is_a_layer() -> None:
    folders = {one.name for one in PACKAGE.iterdir() if one.is_dir()} - {"__pycache__"}
    assert folders <= {*LAYERS, ABOVE_ALL}


def test_every_exception_for_state_is_still_needed() -> None:
    present = {(module.path, name) for module in all_modules() for name, _, _ in state_of(module)}
    stale = set(ALLOWED_STATE) - present
    assert not stale, f"remove from ALLOWED_STATE in house_state.py: {sorted(stale)}"


def test_every_exception_for_names_is_still_needed() -> None:
    stale = set(SHARED_NAMES) - shared_names()
    assert not stale, f"remove from SHARED_NAMES in house_names.py: {sorted(stale)}"


def test_sizes_are_reported(
    capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    by_size = sorted(all_modules(), key=lambda module: module.line_count)
    median = statistics.median(module.line_count for module in by_size)
    assert median <= MEDIAN_LINES, "files have grown: one idea each"
    record_property("median_lines", median)
    with capsys.disabled():
        longest = by_size[-1]
        print(
            f"\nhouse: {len(by_size)} files, median {median:g} lines,"
            f" longest {longest.line_count} ({longest.path})"
        )
