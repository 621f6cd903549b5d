"""Several vectors side by side, each line for all of them before the next one.

const tr_w v2 = (v0 + v1);          const tr_w v2_x0 = (v0_x0 + v1_x0);
const tr_w v3 = tr_w_abs(v2);  ->   const tr_w v2_x1 = (v0_x1 + v1_x1);
                                    const tr_w v3_x0 = tr_w_abs(v2_x0); ...

A value of a chain waits for the one before it. A processor looks ahead for something else to do,
but not far enough to find the next round of a loop whose body is a long chain.

Where all that is loaded and stored is bf16, two vectors share one of 32: those at even places and
those at odd ones. Each is one instruction away from being floats, and no lane changes its place.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from treadle.codegen.c.whole_values import HERE

LOADED = f"tr_w_load_bf16{HERE}("
OF_PAIR = ("tr_w_load_even_bf16(", "tr_w_load_odd_bf16(")
"""What loads the first and the second vector of a pair."""


class SideBySide:
    """Copies of the lines of a loop, each with names of its own."""

    def __init__(self, names: Collection[str], in_pairs: bool) -> None:
        """`names` are those that the loop declares."""
        self.names = re.compile(rf"\b({'|'.join(sorted(names, key=len, reverse=True))})\b")
        self.in_pairs = in_pairs

    def named(self, text: str, k: int) -> str:
        """A text with the names of one copy."""
        return self.names.sub(rf"\1_x{k}", text)

    def copies(self, line: str, stored: tuple[str, str] | None, count: int) -> list[str]:
        """A line for each vector; `stored` says where and what, if it stores bf16."""
        if not self.in_pairs:
            return [self.named(line.replace(HERE, ""), k) for k in range(count)]
        if stored is None:
            return [self.named(line.replace(LOADED, OF_PAIR[k % 2]), k) for k in range(count)]
        place, value = stored
        return [
            f"tr_w_store_pair_bf16({self.named(place, k)}, {self.named(value, k)}, "
            f"{self.named(value, k + 1)});"
            for k in range(0, count, 2)
        ]
