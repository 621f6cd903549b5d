"""Names of values as torch.fx gives them: `add`, `add_1`, `add_2`; `abs_1` where Python has one."""

from __future__ import annotations

import builtins


class FxNames:
    """The names of one block."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """The next name for the result of `base`."""
        count = self.counts.get(base)
        if count is None:
            count = 1 if hasattr(builtins, base) else 0
        self.counts[base] = count + 1
        return f"{base}_{count}" if count else base
