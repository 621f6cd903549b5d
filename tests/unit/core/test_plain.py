"""Plain data: exactly the types JSON knows, in an order that does not depend on hashing."""

import enum
import json
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.plain import as_plain


class Colour(str, enum.Enum):  # noqa: UP042 (StrEnum prints itself well, this does not)
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Whole:
    def __index__(self) -> int:
        return 7


class Named:
    def __str__(self) -> str:
        return "op3"


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, None),
        (True, True),
        (3, 3),
        (2.5, 2.5),
        ("text", "text"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Whole(), 7),
        (Named(), "op3"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        ((1, (2, "x")), [1, [2, "x"]]),
        ({10, 9, 100}, [9, 10, 100]),
        ({"b", 1}, ["b", 1]),
        (frozenset({frozenset({3, 1}), frozenset({2})}), [[1, 3], [2]]),
        ({1: {"a": Named()}}, {"1": {"a": "op3"}}),
        (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
    ],
)
def test_each_value_has_one_plain_form(value: object, expected: object) -> None:
    got = as_plain(value)
    assert got == expected
    assert type(got) is type(expected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(JSON)
def test_plain_data_is_left_as_it_is_and_survives_json(value: object) -> None:
    assert as_plain(value) == value
    assert json.loads(json.dumps(as_plain(value), allow_nan=False)) == value
