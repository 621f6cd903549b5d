"""A captured ATen graph becomes a program.

| file | holds |
|---|---|
| `graph.py`, `node.py` | a graph to a program; what one lowering sees of its node |
| `graph_kind.py` | forward, backward, or without gradients |
| `values.py`, `realise.py` | computations and memory; when one becomes the other |
| `reshaping.py`, `owners.py`, `regions.py`, `parts.py` | views, storages, graphs inside graphs |
| `symbols.py`, `run_numbers.py`, `promotion.py`, `eager_types.py` | torch's sizes and types |
| `registry.py`, `table.py`, `ops/` | every ATen overload that becomes loops |
| `calls.py` | everything else: calls of the ATen operator itself |
| `origins.py` | where a node came from |
"""
