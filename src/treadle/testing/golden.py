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

A case called `should_not_...` also says which verdicts refuse, one a line, in a block `reasons`:
the code, and the reason in words where the verdict gives one. Where a pass looks at nothing that it
could refuse, the block says `none:` and why, and no verdict may refuse.

    ```reasons
    KER007 scan goes one by one
    ```
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    @property
    def refuses(self) -> bool:
        """Whether the case shows what should not happen."""
        return self.name.startswith("should_not")

    def check_reasons(self, events: Iterable[Mapping[str, Any]], update: bool = False) -> None:
        """Compare the verdicts that refuse with the block `reasons`; AssertionError or rewrite."""
        told = [event for event in events if event["kind"] == "verdict" and not event["ok"]]
        found = sorted({f"{e['code']} {e['facts'].get('reason', '')}".rstrip() for e in told})
        stated = self.blocks.get("reasons", "").strip()
        if not stated and not found:
            raise AssertionError(f"{self.path.name}: nothing refuses; say `none:` and why")
        if stated.startswith("none:") and not found:
            return
        self.check("reasons", "".join(f"{line}\n" for line in found), update)

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
        raise AssertionError(_difference(self.path, expected, actual))


def check_text(path: Path, actual: str, update: bool = False) -> None:
    """Compare `actual` with a whole file; AssertionError with a diff, or rewrite the file."""
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if actual == expected:
        return
    if not update:
        raise AssertionError(_difference(path, expected, actual))
    path.write_text(actual, encoding="utf-8")


def _difference(path: Path, expected: str, actual: str) -> str:
    diff = difflib.unified_diff(
        expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm=""
    )
    hint = "if the change is meant, rerun with --update-golden"
    return "\n".join([f"{path.name}: {hint}", *diff])


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
