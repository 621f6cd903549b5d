"""Declared and effective hand-overs of blocks between storages, and the chains they form."""

from collections.abc import Sequence


class HandOvers:
    """Who may take whose block, who does, and how large the block is that a storage lives in."""

    __slots__ = ("among", "block", "giver", "host", "reused_by", "sizes", "taker")

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        # Declared pairs (out -> inp, inp -> out), and those of them that are effective.
        self.giver: dict[int, int] = {}
        self.taker: dict[int, int] = {}
        self.host: dict[int, int] = {}
        self.reused_by: dict[int, int] = {}
        self.among: dict[int, frozenset[int]] = {}  # steps that may share the block of an out
        self.block: dict[int, int] = {}  # bytes of the block that an effective out lives in

    def block_bytes(self, i: int) -> int:
        """Return the size of the block that a storage lives in."""
        return self.block.get(i, self.sizes[i])

    def root(self, i: int) -> int:
        """Return the storage that allocated the block which a storage lives in."""
        while i in self.host:
            i = self.host[i]
        return i

    def roots(self) -> dict[int, int]:
        """Return the root of every storage that lives in another's block, chains walked once."""
        found: dict[int, int] = {}
        for first in self.host:
            if self.host[first] in self.host:
                continue  # not the first holder of its chain: reached from there
            root = self.host[first]
            holder: int | None = first
            while holder is not None:
                found[holder] = root
                holder = self.reused_by.get(holder)
        return found

    def would_close_a_circle(self, out: int, inp: int) -> bool:
        """Tell whether ``inp`` already descends from ``out``.

        Stops at the nearer end of the two chains, so that a long one is declared in linear time
        from the front as well as from the back.
        """
        up: int | None = inp
        down: int | None = out
        while up is not None and down is not None:
            if up == out:
                return True
            up, down = self.giver.get(up), self.taker.get(down)
        return False

    def switch(self, out: int, inp: int, effective: bool, changed: dict[int, None]) -> None:
        """Turn a hand-over on or off and pass the size of the block on down the chain."""
        if effective:
            self.host[out] = inp
            self.reused_by[inp] = out
        else:
            del self.host[out]
            del self.reused_by[inp]
        changed[inp] = None
        changed[out] = None
        holder: int | None = out
        while holder is not None:
            old = self.block_bytes(holder)
            if holder in self.host:
                self.block[holder] = self.block_bytes(self.host[holder])
            else:
                self.block.pop(holder, None)
            changed[holder] = None
            holder = self.reused_by.get(holder) if self.block_bytes(holder) != old else None
