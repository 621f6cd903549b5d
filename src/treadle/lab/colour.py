"""Colours for people at a terminal; files, pipes and `NO_COLOR` get plain text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TextIO

from treadle.core.options import no_colour_asked

RED, GREEN, YELLOW, CYAN, PLAIN = "\033[31m", "\033[32m", "\033[33m", "\033[36m", "\033[0m"
BOLD = "\033[1m"

COLOURS: Mapping[re.Pattern[str], str] = {
    re.compile(r"(?<=: )(?:ok|yes)\b|\b(?:all results agree|proven minimal)\b"): GREEN,
    re.compile(r"\b(?:FAILED|RESULTS DIFFER)\b|(?<=: )no(?=$| [A-Z]{2,5}[0-9]{3}\b)"): RED,
    re.compile(r"^\s*(?:note|warning)(?=:)"): YELLOW,
    re.compile(r"\b[A-Z]{2,5}[0-9]{3}\b"): CYAN,
}
"""Verdicts, answers, notes and codes: what the eye looks for."""


def wants_colour(stream: TextIO) -> bool:
    """Whether a person reads the stream and did not ask for plain text."""
    try:
        return stream.isatty() and not no_colour_asked()
    except ValueError:  # closed
        return False


def painted(text: str, colour: bool) -> str:
    """The text, with colours if asked."""
    if not colour:
        return text
    for pattern, code in COLOURS.items():
        text = pattern.sub(lambda m, code=code: f"{code}{m.group()}{PLAIN}", text)  # type: ignore[misc]
    return text
