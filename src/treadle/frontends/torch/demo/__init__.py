"""The model of `treadle demo`, and how it is measured."""
