"""What no file of the project may contain, whatever its language."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from house_tree import ROOT

# Spelled in pieces, or this file would find itself.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.~-])/(?:wor" r"k|roo" r"t|hom" r"e)/"),
    "a reminder instead of an issue": re.compile(r"\b(?:TO" r"DO|FIX" r"ME)\b"),
}

# Data that others wrote and that tests must see unchanged; code and prose there still count.
FOREIGN = ("tests/corpus/",)
OURS = (".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".cfg")
SKIPPED_FOLDERS = ("build", "carry", "dist")  # with everything that begins with a dot


def project_files(root: Path = ROOT) -> Iterator[str]:
    """Paths of the files git tracks or would track; without git, of all that are not outputs."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        yield from _walk(root)
        return
    yield from sorted(path for path in listed.decode().split("\0") if path)


def _walk(root: Path) -> Iterator[str]:
    for folder, inner, names in os.walk(root):
        inner[:] = [n for n in inner if not n.startswith((".", "__")) and n not in SKIPPED_FOLDERS]
        yield from (Path(folder, name).relative_to(root).as_posix() for name in sorted(names))


def forbidden_text(path: str, content: bytes) -> Iterator[str]:
    """Findings in one file; what is not text is nobody's prose and passes."""
    if path.startswith(FOREIGN) and not path.endswith(OURS):
        return
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in FORBIDDEN.items():
            if match := pattern.search(line):
                yield f"{path}:{number}: {what}: {match[0]}"
