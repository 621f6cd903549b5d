"""`torch.compile(model, backend="treadle")`: captured graphs become programs, and run.

| file | holds |
|---|---|
| `backend.py` | what Dynamo calls: options, AOTAutograd, the forward and backward compilers |
| `decompositions.py` | which ATen operators torch takes apart before we see them |
| `lowering.py`, `node.py` | a graph to a program; what one lowering sees of its node |
| `values.py`, `realise.py` | computations and memory; when one becomes the other |
| `table.py`, `ops_*.py` | every ATen overload that becomes loops |
| `calls.py` | everything else: calls of the ATen operator itself |
| `runner.py` | running a compiled program on torch tensors |
| `compat.py` | what differs between versions of torch |

Adding an operator: see `registry.py`.
"""
