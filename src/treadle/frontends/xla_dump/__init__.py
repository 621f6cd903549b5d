"""XLA's buffer assignment dumps and HLO text: read, printed back byte for byte, checked, replanned.

    dump = read_dump("module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt")
    dump.allocations, dump.used, dump.live, dump.module, dump.findings
    print_dump(dump)             # the text of that file
    rederive(dump).differences   # what it claims otherwise than follows from the rest of it
    xla_plan(dump)               # its own plan, for the validator of memory plans

`plan.plan_dump(dump)` plans the same memory anew, `import_program.import_program(dump)` gives the
schedule as a program; both are imported only by who needs them.

Nothing in a file is ever evaluated.
"""

from treadle.frontends.dumps import Finding, Rederivation
from treadle.frontends.xla_dump.hlo import Computation, Instruction, Module, parse_hlo
from treadle.frontends.xla_dump.import_plan import alignment_of, xla_plan
from treadle.frontends.xla_dump.model import (
    Allocation,
    Assigned,
    HloLiveRange,
    HloValue,
    SourceFile,
    UsedValue,
    XlaDump,
)
from treadle.frontends.xla_dump.parse import (
    FILE_KINDS,
    kind_of_text,
    parse_dump,
    read_dump,
    siblings,
)
from treadle.frontends.xla_dump.print import print_dump, print_file
from treadle.frontends.xla_dump.rederive import rederive
from treadle.frontends.xla_dump.report import ReportLines, parse_report, print_report

__all__ = [
    "FILE_KINDS",
    "Allocation",
    "Assigned",
    "Computation",
    "Finding",
    "HloLiveRange",
    "HloValue",
    "Instruction",
    "Module",
    "Rederivation",
    "ReportLines",
    "SourceFile",
    "UsedValue",
    "XlaDump",
    "alignment_of",
    "kind_of_text",
    "parse_dump",
    "parse_hlo",
    "parse_report",
    "print_dump",
    "print_file",
    "print_report",
    "read_dump",
    "rederive",
    "siblings",
    "xla_plan",
]
