"""New names: the wanted one, else numbered, and never given twice."""

from __future__ import annotations

from treadle.core.unused import unused_name


def test_a_name_that_is_taken_gets_the_first_free_number() -> None:
    taken = {"x", "x_3"}
    assert [unused_name("x", taken) for _ in range(3)] == ["x_2", "x_4", "x_5"]
    assert unused_name("y", taken) == "y"
    assert unused_name("y", taken, first=1) == "y_1"
    assert taken == {"x", "x_2", "x_3", "x_4", "x_5", "y", "y_1"}
