"""The reference interpreter: what a program means, computed with numpy.

It is the ground truth that passes and compiled kernels are compared with, so it is written to be
read, not to be fast. `run` is the way in; `externs` may implement library calls.
"""

from treadle.ir.interp.calls import CallContext, ExternFn, from_arrays
from treadle.ir.interp.errors import RunError
from treadle.ir.interp.machine import Result, run

__all__ = ["CallContext", "ExternFn", "Result", "RunError", "from_arrays", "run"]
