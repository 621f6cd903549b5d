"""Check what a dump claims: work it out again from the rest of it, and from HLO text if there.

result = rederive(read_dump("module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt"))
result.checked       {"live_ranges": 132, "sizes": 135, "peaks": 1, ...}
result.differences   what the dump prints otherwise than it must be
result.notes         what could not be worked out and was taken as printed
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle.frontends.dumps import Finding, Rederivation
from treadle.frontends.xla_dump.import_plan import xla_plan
from treadle.frontends.xla_dump.model import Allocation, HloPosition, XlaDump, human_size
from treadle.frontends.xla_dump.rederive_headers import wrong_headers
from treadle.frontends.xla_dump.rederive_lives import derived_ranges, is_plausible
from treadle.frontends.xla_dump.rederive_peak import (
    ValueSizes,
    peak_moment,
    peak_rows,
    printed_rows,
    wrong_tree_rows,
)
from treadle.frontends.xla_dump.rederive_uses import (
    count_unreadable,
    wrong_shapes,
    wrong_uses,
    wrong_values,
)
from treadle.frontends.xla_dump.report import wrong_lines
from treadle.frontends.xla_dump.schedule import HloSchedule, schedule_of
from treadle.frontends.xla_dump.shapes import byte_size, parse_shape
from treadle.memory.validate import violations

STATED, SIZE, PLAN, LIFE, PEAK = "XLA006", "XLA007", "XLA008", "XLA009", "XLA010"
SEQUENCE, HEADER, REPORT, HLO, AS_GIVEN = "XLA011", "XLA012", "XLA013", "XLA014", "XLA015"
USES = "XLA016"
COUNTS = (
    "live_ranges", "sizes", "uses", "totals", "peaks", "peak_lines", "headers", "placements"
)  # fmt: skip


def rederive(dump: XlaDump) -> Rederivation[Finding]:
    """Every claim of the dump that follows from other parts of it, compared."""
    return _DumpCheck(dump).run()


class _DumpCheck:
    """The comparison of one dump."""

    def __init__(self, dump: XlaDump) -> None:
        self.dump = dump
        self.result: Rederivation[Finding] = Rederivation.counting(COUNTS)
        self.sizes = ValueSizes(dump)

    def run(self) -> Rederivation[Finding]:
        """Compare everything the parts at hand allow."""
        self._totals()
        self._sizes()
        self._values()
        schedule = schedule_of(self.dump)
        if schedule:
            self._sequence(schedule)
            self._lives(schedule)
            self._peak()
        self._headers(schedule)
        self._placements()
        self._module()
        self._report()
        return self.result

    # -- tools -----------------------------------------------------------------------------
    def _differs(self, code: str, message: str, file: str, line: int | None) -> None:
        self.result.differences.append(Finding(code, message, line, file=file))

    def _count(self, what: str, ok: bool) -> None:
        self.result.total[what] += 1
        self.result.checked[what] += ok

    # -- figures that XLA derives when it prints ----------------------------------------------
    def _totals(self) -> None:
        dump = self.dump
        for allocation in dump.allocations:
            if allocation.stated_temp is not None:
                self._wrong_temp(allocation)
        if dump.values and dump.assignment and not dump.values.is_derived:
            total = dump.total_bytes
            stated = dump.values.stated_total
            ok = stated is None and dump.values.stated_human is None
            self._count("totals", ok)
            if not ok:
                shown = total if stated is None else stated
                human = dump.values.stated_human or human_size(shown)
                message = (
                    f"the total is printed as {shown} ({human}), "
                    f"the allocations sum to {total} ({human_size(total)})"
                )
                self._differs(STATED, message, dump.values.file, dump.values.total_line)
        if dump.live and not dump.live.is_derived:
            count = len(dump.live.sequence)
            self._count("totals", dump.live.stated_max is None)
            if dump.live.stated_max is not None:
                message = f"printed as max {dump.live.stated_max}, there are {count} instructions"
                self._differs(STATED, message, dump.live.file, dump.live.line)

    def _wrong_temp(self, allocation: Allocation) -> None:
        assert self.dump.assignment is not None, "allocations come from an assignment"
        printed = "is" if allocation.stated_temp else "is not"
        derived = "is" if allocation.derived_temp else "is not"
        message = (
            f"allocation {allocation.number} {printed} called preallocated-temp, "
            f"by its other attributes it {derived}"
        )
        self._differs(STATED, message, self.dump.assignment.file, allocation.line)

    def _sizes(self) -> None:
        """Sizes of values against the shapes printed with them."""
        if not self.dump.assignment:
            return
        unknown = 0
        for _, one in self.dump.assigned():
            shape = parse_shape(one.shape)
            size = None if shape is None else byte_size(shape)
            if size is None:
                unknown += 1
                continue
            self._count("sizes", size == one.size)
            if size != one.size:
                message = f"{one.value} has size {one.size}, its shape {one.shape} takes {size}"
                self._differs(SIZE, message, self.dump.assignment.file, one.line)
        if unknown:
            what = f"the size of {unknown} values was taken as printed: tiled, dynamic or new types"
            self._as_given(what, self.dump.assignment.file)

        for one, made in wrong_shapes(self.dump):
            message = f"{one.value} is {one.shape} here, its instruction makes {made}"
            self._differs(SIZE, message, self.dump.assignment.file, one.line)

    def _values(self) -> None:
        """Positions and uses against the texts of the instructions."""
        values = self.dump.values
        if values is None or values.is_derived:
            return
        before = len(self.result.differences)
        self._listed(USES, wrong_values(self.dump), values.file)
        self._listed(USES, wrong_uses(self.dump), values.file)
        if count := count_unreadable(self.dump):
            self._as_given(f"{count} instruction texts were not understood", values.file)
        wrong = {finding.line for finding in self.result.differences[before:]}
        for used in self.dump.used:
            self._count("uses", used.line not in wrong)

    def _as_given(self, message: str, file: str) -> None:
        self.result.notes.append(Finding(AS_GIVEN, message, is_note=True, file=file))

    # -- order and lives -------------------------------------------------------------------
    def _sequence(self, schedule: HloSchedule) -> None:
        live = self.dump.live
        if schedule.clash is None or live is None:
            return
        time, ours, theirs = schedule.clash
        message = f"instruction {time} is {ours} here and {theirs} in the HLO text next to it"
        self._differs(SEQUENCE, message, live.file, live.sequence_line + 1 + time)

    def _lives(self, schedule: HloSchedule) -> None:
        dump = self.dump
        if not (dump.values and dump.live) or schedule.clash or dump.live.is_derived:
            return
        derived = derived_ranges(dump, schedule)
        used = {one.value.place: one for one in dump.used}
        given = 0
        for one in dump.live.ranges:
            found = derived.get(one.place)
            printed = (one.start, one.end)
            self._count("live_ranges", found == printed)
            if found is None or found == printed:
                continue
            if not schedule.is_exact and is_plausible(used[one.place], printed, schedule):
                given += 1
                continue
            message = f"{one.place} lives {one.start}-{one.end} as printed, {found[0]}-{found[1]}"
            self._differs(LIFE, f"{message} by its uses", dump.live.file, one.line)
        if given:
            what = (
                f"{given} live ranges were taken as printed: loops and branches need the HLO text"
            )
            self._as_given(what, dump.live.file)

    def _peak(self) -> None:
        live, values = self.dump.live, self.dump.values
        if live is None or live.peak is None or values is None:
            return
        moment = peak_moment(self.dump, self.sizes)
        if moment is None:
            self._as_given("the peak was taken as printed: not all sizes are known", live.file)
            return
        peak = live.peak
        self._count("peaks", moment == peak.moment)
        if moment != peak.moment:
            message = f"the peak is printed at {peak.moment}, by sizes and lives it is at {moment}"
            self._differs(PEAK, message, live.file, peak.line)
        derived, printed = peak_rows(self.dump, self.sizes, peak), printed_rows(peak)
        for k, row in enumerate(derived or ()):
            ok = k < len(printed) and printed[k] == row
            self._count("peak_lines", ok)
            if not ok and self.result.total["peak_lines"] - self.result.checked["peak_lines"] == 1:
                line = peak.lines[k].line if k < len(printed) else peak.line
                message = f"line {k + 1} of the peak should be {_row(row)}"
                self._differs(PEAK, message, live.file, line)
        if derived is not None and len(printed) > len(derived):
            message = f"{len(printed)} values at the peak are printed, {len(derived)} live there"
            self._differs(PEAK, message, live.file, peak.lines[len(derived)].line)
        if peak.tree:
            total = sum(row.size for row in peak.lines)
            self._listed(PEAK, wrong_tree_rows(peak.tree, total), live.file)

    def _listed(self, code: str, wrong: Iterable[tuple[int, str]], file: str) -> None:
        for line, message in wrong:
            self._differs(code, message, file, line)

    # -- allocations -----------------------------------------------------------------------
    def _headers(self, schedule: HloSchedule | None) -> None:
        if not self.dump.assignment:
            return
        wrong = list(wrong_headers(self.dump, schedule))
        self._listed(HEADER, [(line, text) for line, _, text in wrong], self.dump.assignment.file)
        numbers = {number for _, number, _ in wrong}
        for allocation in self.dump.allocations:
            self._count("headers", allocation.number not in numbers)

    def _placements(self) -> None:
        """XLA's own plan, judged by the validator of memory plans."""
        dump = self.dump
        if not (dump.assignment and dump.live and dump.values):
            self._outside()
            return
        if any(not finding.is_note for finding in dump.findings):
            return  # reported already; a plan of such a dump means nothing
        problem, plan = xla_plan(dump)
        wrong = violations(problem, plan)
        lines = {str(HloPosition(*one.value.place)): one.line for _, one in dump.assigned()}
        lines |= {one.value.name: one.line for _, one in dump.assigned() if not one.value.index}
        bad = {violation.where for violation in wrong}
        for block in problem.blocks:
            self._count("placements", block.name not in bad)
        for violation in wrong:
            line = lines.get(violation.where)
            message = f"{violation.where}: {violation.message} [{violation.code}]"
            self._differs(PLAN, message, dump.assignment.file, line)

    def _outside(self) -> None:
        """Without lives, whether values share bytes cannot be said, but where they end can."""
        for allocation, one in self.dump.assigned():
            end = one.offset + one.size
            if end > allocation.size and self.dump.assignment:
                where = f"[{one.offset}, {end}) is outside [0, {allocation.size})"
                message = (
                    f"{HloPosition(*one.value.place)}: {where} of allocation {allocation.number}"
                )
                self._differs(PLAN, message, self.dump.assignment.file, one.line)

    # -- files next to it --------------------------------------------------------------------
    def _module(self) -> None:
        module = self.dump.module
        if module is None:
            return
        for one, name in module.dangling():
            message = f"{one.name} names {name}, which is not there"
            self._differs(HLO, message, module.file, one.line)
            return

    def _report(self) -> None:
        report = self.dump.report
        if report and self.dump.assignment:
            self._listed(REPORT, wrong_lines(report, self.dump.allocations), report.file)


def _row(row: tuple[str, int, int | None]) -> str:
    name, size, cumulative = row
    suffix = "" if cumulative is None else f" (cumulative: {cumulative} bytes)"
    return f"'{name}: {size} bytes{suffix}'"
