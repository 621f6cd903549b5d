"""Communication: machines and links, what collectives cost, when they run, and how soon they could.

hardware.py      machines: ranks per node, links inside a node and between nodes
kinds.py         kinds of collectives, by name
protocols.py     what NCCL's algorithms and protocols make of a link
cost.py          how long one collective takes, by model or as measured
measured.py      measured times, from a calibration file or a profiler's trace
tasks.py         a program as tasks: compute on streams, collectives on channels, waits
simulate.py      when every task runs in a given order, and what is exposed
bounds.py        no order can be done sooner than this
"""
