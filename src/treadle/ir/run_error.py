"""The error of a run: what went wrong, in which operation, and the numbers that show it."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.core import TreadleError


class RunError(TreadleError):
    """A program that cannot be run on these inputs, or that broke a promise while running.

    RUN001  an input does not fit          RUN006  nobody knows how to run a call
    RUN002  a size does not fit            RUN007  an assertion of the program failed
    RUN003  an index leaves its storage    RUN008  a statement has no meaning here
    RUN004  an indirect index out of range RUN009  nothing to choose from
    RUN005  a buffer is read before it is written
    RUN010  a call produced something that does not fit
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        notes: Iterable[str] = (),
        operations: Iterable[str] = (),
    ) -> None:
        super().__init__(message, code=code, notes=notes)
        self.operations = tuple(operations)
        """The operations in which it happened: one nest may do the work of several."""
