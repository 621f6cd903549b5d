"""The error of a run, as the interpreter raises it; compiled code raises the same one."""

from __future__ import annotations

from treadle.ir.run_error import RunError

__all__ = ["RunError"]
