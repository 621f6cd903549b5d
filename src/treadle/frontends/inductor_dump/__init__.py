"""TorchInductor's IR dumps: read `ir_pre_fusion.txt` and its kin, and write them byte for byte.

    dump = read_dump("ir_post_fusion.txt")
    dump.nodes[0].writes, dump.dialect, dump.findings
    print_dump(dump) == open("ir_post_fusion.txt").read()
    rederive(dump).differences   # what it claims otherwise than its loop bodies say
    import_program(dump).program # executable, with the dump's groups
    export_dump(program, "2.13") # any program, in this format
    with record() as recording:  # what torch.compile does in this process
        compiled(x)

Only `record` imports torch, when it is called; nothing in a file is ever evaluated.
"""

from treadle.frontends.dumps import Finding, Rederivation
from treadle.frontends.inductor_dump.dialect import Dialect, detect_dialect
from treadle.frontends.inductor_dump.export_program import Exported, export_dump, export_program
from treadle.frontends.inductor_dump.import_program import Imported, import_program, unpacked
from treadle.frontends.inductor_dump.model import DumpNode, DumpSection, InductorDump
from treadle.frontends.inductor_dump.parse import looks_like_dump, parse_dump, read_dump
from treadle.frontends.inductor_dump.print import print_dump
from treadle.frontends.inductor_dump.record import Decision, RecordedGraph, Recording, record
from treadle.frontends.inductor_dump.rederive import Difference, rederive

__all__ = [
    "Decision",
    "Dialect",
    "Difference",
    "DumpNode",
    "DumpSection",
    "Exported",
    "Finding",
    "Imported",
    "InductorDump",
    "RecordedGraph",
    "Recording",
    "Rederivation",
    "detect_dialect",
    "export_dump",
    "export_program",
    "import_program",
    "looks_like_dump",
    "parse_dump",
    "print_dump",
    "read_dump",
    "record",
    "rederive",
    "unpacked",
]
