"""Finds the known names that a mistyped one most likely meant."""

from __future__ import annotations

from collections.abc import Iterable

MOST_SHOWN = 40
"""Known names that are listed: a program may have thousands."""


def nearest(word: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """Return up to `limit` known names close to `word`, best first; case does not matter."""
    import difflib  # costs milliseconds and is needed only once something went wrong

    by_folded = {name.casefold(): name for name in sorted(known)}
    close = difflib.get_close_matches(word.casefold(), by_folded, n=limit, cutoff=0.6)
    return tuple(by_folded[folded] for folded in close)


def suggestion_notes(word: str, known: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the note lines of an error about the unknown name `word`.

    `what` names the known things in the plural: "options", "codes".
    """
    names = sorted(known)
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    notes = [f"known {what}: {', '.join(names[:MOST_SHOWN]) or 'none'}{more}"]
    if close := nearest(word, names):
        notes.insert(0, f"did you mean: {', '.join(close)}")
    return tuple(notes)
