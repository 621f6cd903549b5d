"""Treadle schedules tensor programs: which kernel, in which order, in which bytes of memory."""

__version__ = "0.1.0"
