"""Problems and plans as CSV, in MiniMalloc's columns, so that any case is a file.

    # capacity 1048576
    # pool out0 size=4096 free=0-155 alignment=64
    id,lower,upper,size,alignment,gaps,fixed,host,group,pool,offset
    b1,0,5,1024,64,2-3 3-4,,out0,,out0,0

`id,lower,upper,size` must be there; the others may be left out, and so may single values. Columns
come in any order. `pool` (arena where left out) and `offset` are a plan: they are read, checked
and compared, never binding; `fixed` is binding. Comment lines that are not a capacity or a pool
are skipped.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from treadle.core.errors import InputError
from treadle.memory.problem import ARENA, Block, Place, Plan, Pool, Problem, Ranges

REQUIRED = ("id", "lower", "upper", "size")
OPTIONAL = ("alignment", "gaps", "fixed", "host", "group", "pool", "offset")
NUMBER = re.compile(r"-?[0-9]+", re.ASCII)
RANGE = re.compile(r"(-?[0-9]+)-(-?[0-9]+)", re.ASCII)
LONGEST_NUMBER = 30


@dataclass(frozen=True, slots=True)
class Table:
    """What a CSV holds: a problem, and a plan if it has offsets for all blocks."""

    problem: Problem
    plan: Plan | None


def looks_like_csv(text: str) -> bool:
    """Whether the first line that is not a comment names the columns of a problem."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            return set(REQUIRED) <= {word.strip() for word in line.split(",")}
    return False


def parse_csv(text: str, file: str = "problem.csv") -> Table:
    """Read a problem, and the plan in it if there is one, or raise one InputError."""
    return _CsvReader(file).read(text)


def print_csv(problem: Problem, plan: Plan | None = None) -> str:
    """The problem as text that `parse_csv` reads back, with the places of a plan if given."""
    out = io.StringIO()
    if problem.capacity is not None:
        out.write(f"# capacity {problem.capacity}\n")
    for pool in problem.pools:
        aligned = "" if pool.alignment is None else f" alignment={pool.alignment}"
        free = ",".join(f"{a}-{b}" for a, b in pool.free)
        out.write(f"# pool {_word(pool.name)} size={pool.size} free={free}{aligned}\n")
    rows = [_row(block, plan) for block in problem.blocks]
    columns = [*REQUIRED, *[c for c in OPTIONAL if any(row.get(c, "") != "" for row in rows)]]
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _row(block: Block, plan: Plan | None) -> dict[str, object]:
    place = plan.placements[block.name] if plan else None
    return {
        "id": block.name,
        "lower": block.lower,
        "upper": block.upper,
        "size": block.size,
        "alignment": "" if block.alignment == 1 else block.alignment,
        "gaps": " ".join(f"{a}-{b}" for a, b in block.gaps),
        "fixed": "" if block.fixed is None else block.fixed,
        "host": block.host or "",
        "group": block.group or "",
        "pool": place.pool if place and place.pool != ARENA else "",
        "offset": place.offset if place else "",
    }


def _word(name: str) -> str:
    return re.sub(r"[\s%]", lambda m: f"%{ord(m[0]):02x}", name)


def _unword(word: str) -> str:
    return re.sub(r"%([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), word)


class _CsvReader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.line = 0
        self.capacity: int | None = None
        self.pools: list[Pool] = []

    def read(self, text: str) -> Table:
        blocks: list[Block] = []
        places: dict[str, Place] = {}
        columns: list[str] = []
        try:
            for row in csv.reader(self.data_lines(text), strict=True):
                if not columns:
                    columns = self.header(row)
                elif len(row) != len(columns):
                    raise self.bad(f"{len(columns)} values", f"{len(row)}")
                else:
                    values = {k: v.strip() for k, v in zip(columns, row, strict=True)}
                    blocks.append(self.block(values))
                    if values.get("offset"):
                        place = Place(values.get("pool") or ARENA, self.number(values, "offset"))
                        places[blocks[-1].name] = place
        except csv.Error as e:
            raise self.bad("a line of comma-separated values", str(e)) from None
        if not columns:
            raise self.bad(f"a first line with the columns {','.join(REQUIRED)}", "an empty file")
        try:
            problem = Problem(tuple(blocks), tuple(self.pools), self.capacity, self.file)
        except ValueError as e:
            raise self.bad("blocks and pools that go together", str(e)) from None
        return Table(problem, _plan(blocks, places))

    def data_lines(self, text: str) -> Iterator[str]:
        for number, line in enumerate(io.StringIO(text, newline=None), 1):
            self.line = number
            if line.startswith("#"):
                self.comment(line[1:].split())
            elif line.strip():
                yield line

    def comment(self, words: list[str]) -> None:
        if len(words) == 2 and words[0] == "capacity":
            self.capacity = self.number({"capacity": words[1]}, "capacity")
            if self.capacity < 0:
                raise self.bad("a capacity of at least 0", words[1])
        elif words[:1] == ["pool"] and all("=" in word for word in words[2:]) and words[2:]:
            values = dict(word.split("=", 1) for word in words[2:])
            aligned = self.number(values, "alignment") if "alignment" in values else None
            free = self.ranges(values.get("free", "").replace(",", " "), "free")
            try:
                name = _unword(words[1])
                self.pools.append(Pool(name, self.number(values, "size"), free, aligned))
            except ValueError as e:
                raise self.bad("a pool", str(e)) from None

    def header(self, row: list[str]) -> list[str]:
        columns = [name.strip() for name in row]
        missing = [name for name in REQUIRED if name not in columns]
        if missing:
            raise self.bad(f"the columns {','.join(REQUIRED)}", f"none named {missing[0]!r}")
        for name in columns:
            if columns.count(name) > 1:
                raise self.bad("each column once", f"{name!r} twice")
            if name not in REQUIRED and name not in OPTIONAL:
                expected = f"columns among {','.join((*REQUIRED, *OPTIONAL))}"
                raise self.bad(expected, repr(name))
        return columns

    def block(self, values: Mapping[str, str]) -> Block:
        if not values["id"]:
            raise self.bad("a name in column id", "nothing")
        try:
            return Block(
                name=values["id"],
                lower=self.number(values, "lower"),
                upper=self.number(values, "upper"),
                size=self.number(values, "size"),
                alignment=self.number(values, "alignment") if values.get("alignment") else 1,
                gaps=self.ranges(values.get("gaps", ""), "gaps"),
                fixed=self.number(values, "fixed") if values.get("fixed") else None,
                host=values.get("host") or None,
                group=values.get("group") or None,
            )
        except ValueError as e:
            raise self.bad("a block", str(e)) from None

    def number(self, values: Mapping[str, str], column: str) -> int:
        text = values.get(column, "")
        if not NUMBER.fullmatch(text) or len(text) > LONGEST_NUMBER:
            raise self.bad(f"a whole number for {column}", repr(text) if text else "nothing")
        return int(text)

    def ranges(self, text: str, column: str) -> Ranges:
        found = []
        for word in text.split():
            match = RANGE.fullmatch(word)
            if not match or len(word) > 2 * LONGEST_NUMBER:
                raise self.bad(f"ranges such as 2-5 for {column}", repr(word))
            found.append((int(match[1]), int(match[2])))
        return tuple(found)

    def bad(self, expected: str, found: str) -> InputError:
        line = self.line or 1
        return InputError(file=self.file, line=line, expected=expected, found=found, code="MEM020")


def _plan(blocks: list[Block], places: dict[str, Place]) -> Plan | None:
    """The plan in a file: only if it is one, that is, if no block is without a place."""
    if not blocks or len(places) < len(blocks):
        return None
    largest: dict[str, int] = {}
    for block in blocks:
        key = block.group or ""
        largest[key] = max(block.size, largest.get(key, 0))
    sizes = {b.name: largest[b.group] if b.group else b.size for b in blocks}
    ends = (p.offset + sizes[n] for n, p in places.items() if p.pool == ARENA and sizes[n])
    return Plan(places, max(ends, default=0))
