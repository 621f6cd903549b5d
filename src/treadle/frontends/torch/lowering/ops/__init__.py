"""Lowerings of ATen overloads, a file for each kind; `lowering/table.py` lists the files."""
