"""A program in a process that has torch loaded already: what it says is what a fresh one would.

What torch reads from the environment when it is imported was read before: a program that is about
such a variable needs a process of its own.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path


def main(words: list[str]) -> None:
    """Run the file of the first word in its folder: the second is variables, the rest its words."""
    file, variables, rest = Path(words[0]), json.loads(words[1]), words[2:]
    os.environ.update(variables)
    os.chdir(file.parent)
    sys.argv = [str(file), *rest]
    sys.path.insert(0, str(file.parent))
    runpy.run_path(str(file), run_name="__main__")
