"""The graph of launches for Graphviz: a box for each launch, its operations inside."""

from __future__ import annotations

from typing import Any

from treadle.core.tables import human_bytes

SHOWN = 12
"""Operations that are named in a box."""


def dot(title: str, kernels: list[dict[str, Any]], edges: list[list[Any]]) -> str:
    """The graph as text."""
    lines = [
        f"digraph {_quoted(title)} {{",
        "  rankdir=LR;",
        '  node [shape=box, fontname="monospace"];',
    ]
    for number, row in enumerate(kernels):
        moved = human_bytes(row["bytes_loaded"] + row["bytes_stored"])
        words = [
            row["name"],
            f"{row['kind']}, {moved}, {row['predicted_us']} us",
            *row["ops"][:SHOWN],
        ]
        if len(row["ops"]) > SHOWN:
            words.append(f"and {len(row['ops']) - SHOWN} more")
        lines.append(f"  k{number} [label={_quoted(chr(10).join(words))}];")
    for source, target, names in edges:
        lines.append(f"  k{source} -> k{target} [tooltip={_quoted(', '.join(names))}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
