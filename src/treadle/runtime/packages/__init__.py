"""Packages: a graph compiled ahead of time, on disk, and the way back from there.

`pack.py` says where everything lies, `write.py` compiles it and writes the files, `manifest.py` is
what they say about themselves, `load.py` verifies them and gives something to call.
"""
