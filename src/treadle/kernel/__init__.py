"""Kernels: what a group of operations becomes before it has text, still inside the program."""
