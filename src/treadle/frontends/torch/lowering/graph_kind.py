"""What a captured graph is for."""

from __future__ import annotations

from enum import Enum


class GraphKind(Enum):
    """The part a graph plays; its value is what the graph is called in reports and logs."""

    FORWARD = "forward"
    """Keeps values for its backward graph."""
    BACKWARD = "backward"
    """Gives gradients, from what its forward graph kept."""
    INFERENCE = "graph"
    """Has no gradients. Its results may be views, as in eager mode."""
