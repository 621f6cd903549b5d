"""TorchInductor's IR dumps: read `ir_pre_fusion.txt` and its kin, and write them byte for byte.

    dump = read_dump("ir_post_fusion.txt")
    dump.nodes[0].writes, dump.dialect, dump.findings
    print_dump(dump) == open("ir_post_fusion.txt").read()
    rederive(dump).differences   # what it claims otherwise than its loop bodies say
    import_program(dump).program # executable, with the dump's groups

Nothing here imports torch, and nothing in a file is ever evaluated.
"""

from treadle.frontends.inductor_dump.dialect import Dialect, detect_dialect
from treadle.frontends.inductor_dump.import_program import Imported, import_program, unpacked
from treadle.frontends.inductor_dump.model import Dump, Finding, Node, Section
from treadle.frontends.inductor_dump.parse import looks_like_dump, parse_dump, read_dump
from treadle.frontends.inductor_dump.print import print_dump
from treadle.frontends.inductor_dump.rederive import Difference, Rederivation, rederive

__all__ = [
    "Dialect",
    "Difference",
    "Dump",
    "Finding",
    "Imported",
    "Node",
    "Rederivation",
    "Section",
    "detect_dialect",
    "import_program",
    "looks_like_dump",
    "parse_dump",
    "print_dump",
    "read_dump",
    "rederive",
    "unpacked",
]
