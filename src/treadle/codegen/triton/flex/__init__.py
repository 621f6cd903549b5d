"""Attention with functions of the user's inside: kernels written as a whole, not scheduled."""
