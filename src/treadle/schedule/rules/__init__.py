"""Legality of fusion: ordered tuples of small rules, one file per family."""
