"""A graph that was compiled ahead of time, as C that needs neither Python nor a header of torch's.

`tables.py` says what a package holds, `render.py` writes it: tables and expressions for this graph,
behind them `package.c`, which is the same for all, and the header that callers include.
"""
