"""`torch.compile(model, backend="treadle")`: captured graphs become programs, and run.

| room | holds | start at |
|---|---|---|
| `capture/` | what torch takes apart and divides; a graph compiled step by step | `compile.py` |
| `lowering/` | a captured graph to a program: computations, views, calls | `graph.py` |
| `lowering/ops/` | every ATen overload that becomes loops | `pointwise.py` |
| `report/` | what was decided, for people: kernels, memory, the page of operators | `model.py` |
| `bench/` | `treadle bench`: a user's model by several backends, side by side | `runner.py` |
| `demo/` | the model of `treadle demo` and how it is measured | `measure.py` |

`backend.py` is the door: what Dynamo calls, with its options. `compat.py` stands by itself: what
differs between versions of torch, for every room. What runs a graph is `runtime/hosts/`.
Adding an operator: see `lowering/registry.py`.
"""
