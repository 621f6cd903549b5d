"""Golden cases: a Markdown file with prose, a program before and the program after.

    # a sentence that says what the case shows

    Why it is so.

    ```before
    treadle 1
    ...
    ```

    ```after
    ...
    ```

`read_case` reads one, `GoldenCase.check` compares and, with `update`, rewrites the expectation
instead, so that the review reads the difference. A case whose `after` is empty expects the pass to
return its input.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class GoldenCase:
    """One case: its file, and its blocks by name."""

    path: Path
    text: str
    blocks: dict[str, str]

    @property
    def name(self) -> str:
        """The sentence in the file's name."""
        return self.path.stem

    def check(self, block: str, actual: str, update: bool = False) -> None:
        """Compare `actual` with a block; AssertionError with a diff, or rewrite it."""
        expected = self.blocks.get(block)
        if expected is None:
            raise AssertionError(f"{self.path.name} has no block '{block}'")
        if actual == expected:
            return
        if update:
            old, new = f"```{block}\n{expected}```", f"```{block}\n{actual}```"
            self.path.write_text(self.text.replace(old, new), encoding="utf-8")
            return
        diff = difflib.unified_diff(
            expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm=""
        )
        hint = "if the change is meant, rerun with --update-golden"
        raise AssertionError("\n".join([f"{self.path.name}: {hint}", *diff]))


def read_case(path: Path) -> GoldenCase:
    """The golden case in a file."""
    text = path.read_text(encoding="utf-8")
    blocks = {m.group(1): m.group(2) for m in _BLOCK.finditer(text)}
    if "before" not in blocks or "after" not in blocks:
        raise ValueError(f"{path.name}: a golden case needs a block 'before' and a block 'after'")
    return GoldenCase(path, text, blocks)


def golden_cases(folder: Path) -> list[Path]:
    """The case files of a folder, sorted."""
    return sorted(folder.glob("*.md"))
