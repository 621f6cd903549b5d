"""Names of which there is no other."""

from __future__ import annotations


def unused_name(wanted: str, taken: set[str], first: int = 2) -> str:
    """`wanted`, or with the first number from `first` that makes it new: `x`, `x_2`, `x_3`.

    It is taken from then on.
    """
    name, count = wanted, first
    while name in taken:
        name = f"{wanted}_{count}"
        count += 1
    taken.add(name)
    return name
