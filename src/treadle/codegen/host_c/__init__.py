"""The host of a graph as one C function: kernels, library calls and memory, without Python.

Given as instructions (`instructions.py`), written as text (`render.py`). Nothing is decided here.
"""
