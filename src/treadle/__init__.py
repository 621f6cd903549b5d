"""Treadle schedules tensor programs: which kernel, in which order, in which bytes of memory.

    treadle.compile(model)          torch.compile with this backend, and a memory report
    treadle.plan(model, *inputs)    the memory it will need, without running it
    treadle.explain(model, *inputs) kernels, bytes, calls, refused fusions, graph breaks
    treadle.report(model, *inputs)  all of it as one page to open in a browser
    treadle.memory_of(compiled)     the memory of what treadle.compile gave
    treadle.load_package(path)      what treadle.torch.package or `treadle compile` wrote, to call

All but the last need torch, which is imported when one of them is first asked for and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.frontends.torch.report.live_page import report
    from treadle.frontends.torch.report.model import compile, explain, memory_of, plan
    from treadle.runtime.packages.load import load_package

__version__ = "0.1.0"
__all__ = ["__version__", "compile", "explain", "load_package", "memory_of", "plan", "report"]

FROM_TORCH = ("compile", "explain", "memory_of", "plan", "report")


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name == "load_package":
        from treadle.runtime.packages.load import load_package

        return load_package
    if name not in FROM_TORCH:
        raise AttributeError(f"module 'treadle' has no attribute {name!r}")
    from treadle.frontends.torch.report import live_page, model

    return getattr(live_page if name == "report" else model, name)
