"""The lab: the `treadle` command and everything that shows a program to a person."""
