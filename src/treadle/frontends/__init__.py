"""Ways into Treadle: programs captured from torch, and dumps that other compilers wrote."""
