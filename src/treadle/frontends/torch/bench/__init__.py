"""`treadle bench`: one model by several backends of `torch.compile`, side by side.

| file | holds |
|---|---|
| `asked.py` | what is asked for, and a row of the answer; plain data |
| `runner.py` | a fresh process with empty caches for each backend; needs no torch itself |
| `worker.py` | what such a process does: reference, first call, rounds, memory |
| `targets.py`, `builtin.py` | the user's model and inputs, or one of ours |
| `steps.py` | a forward pass or a training step of it, its results and how far they are off |
| `stages.py` | what of compiling takes how long |
| `picture.py` | the answer as a picture, and as a page |
"""
