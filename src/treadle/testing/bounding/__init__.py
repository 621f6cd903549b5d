"""The parts of `treadle.testing.error_bound`: how far off each kind of value can be, rule by rule.

Every value of a run carries, besides itself, how far any code that keeps the program's numerics
can be from it (`Deviation`). Rules are tables over the names of operations; tests check that each
table is total. A bound is never a guess: where nothing can be said it is infinite.
"""
