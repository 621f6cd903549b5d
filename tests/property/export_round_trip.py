"""A program written as a dump, read back, checked, imported and run beside the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treadle.frontends.inductor_dump import (
    Exported,
    Imported,
    InductorDump,
    export_program,
    import_program,
    parse_dump,
    print_dump,
    rederive,
)
from treadle.ir.interp import run
from treadle.ir.interp.compare import random_inputs, small_sizes
from treadle.ir.program import Program


@dataclass(frozen=True)
class RoundTrip:
    """What came of a program."""

    exported: Exported
    imported: Imported

    @property
    def opaque(self) -> list[str]:
        """Operations that lost their body on the way."""
        return [a.message for a in self.imported.assumptions if a.code == "IND020"]

    def name(self, old: str) -> str:
        """What something is called in the dump."""
        return self.exported.names.get(old, old)


def round_trip(program: Program, dialect: str = "2.13") -> RoundTrip:
    """Export, print, parse, re-derive, import; every step must be clean."""
    exported = export_program(program, dialect)
    back = parse_dump(print_dump(exported.dump))
    assert flaws_of(exported, back) == []
    return RoundTrip(exported, import_program(back))


def flaws_of_dump(program: Program, dialect: str = "2.13") -> list[str]:
    """What is wrong with the program as a dump; it must be possible to import it."""
    exported = export_program(program, dialect)
    back = parse_dump(print_dump(exported.dump))
    import_program(back)
    return flaws_of(exported, back)


def flaws_of(exported: Exported, back: InductorDump) -> list[str]:
    """What a dump that was read back has lost, and what does not follow from its text."""
    found = [f"{back.unknown_count} unknown parts"] if back.unknown_count else []
    found += [str(f) for f in back.findings if not f.is_note]
    found += ["other nodes"] if back.nodes != exported.dump.nodes else []
    return found + [str(d) for d in rederive(back).differences]


def differing(
    program: Program,
    trip: RoundTrip,
    given: Mapping[str, np.ndarray] | None = None,  # type: ignore[type-arg]
) -> list[str]:
    """Outputs and inputs that end up otherwise after the round trip, bit for bit."""
    after = trip.imported.program
    inputs = random_inputs(program) if given is None else given
    sizes = small_sizes(program)
    known = {s.name for s in after.sizes}
    results = (
        run(program, inputs, sizes=sizes),
        run(
            after,
            {trip.name(n): v for n, v in inputs.items() if trip.name(n) in after.inputs},
            sizes={trip.name(s): n for s, n in sizes.items() if trip.name(s) in known},
        ),
    )
    wrong = []
    for name in dict.fromkeys((*program.outputs, *program.inputs)):
        if trip.name(name) not in after.by_name or program.by_name[name].view_of is not None:
            continue
        one, other = results[0].read(name), results[1].read(trip.name(name))
        wide = [x.astype(np.float64) for x in (one, other)]
        same = (wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1]))
        if one.shape != other.shape or not same.all():
            wrong.append(f"{name}: {one} became {other}")
    return wrong
