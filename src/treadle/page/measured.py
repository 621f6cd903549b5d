"""Measured times for launches, from a file: by name, or out of a trace of torch's profiler.

    {"op3": 12.5, "op7": 103.0}                              microseconds by launch
    {"traceEvents": [{"ph": "X", "name": "op3", "ts": 10, "dur": 12.5}, ...]}

In a trace a launch is found by its own name, by the names of its nests as generated kernels bear
them (k3_softmax), or by its library call (aten::mm). A trace may hold several runs: what comes
again in the same order is the same launch, and its median counts.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from treadle.codegen.names import plain
from treadle.core.errors import InputError
from treadle.core.reading import read_text
from treadle.ir.program import Call, Nest, Operation, Program

GENERATED = re.compile(r"^k\d+_(.+)$")
"""What generated functions are called: a number, then the nest or kernel."""
DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of slices that a GPU itself was busy with."""
FORMAT = "an object of microseconds by launch, or a trace with traceEvents"


@dataclass(frozen=True)
class TimedSlice:
    """One slice of a trace: what ran, when and for how long."""

    name: str
    start: float
    us: float
    on_device: bool
    link: object = None
    """What torch's profiler gives an operator and the GPU's work that it began."""


@dataclass(frozen=True)
class Measured:
    """Microseconds by launch, where they come from, and what could not be told apart."""

    us: Mapping[str, float]
    source: str
    notes: Sequence[str] = field(default=())

    def put_into(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data of a page with these times beside the predicted ones."""
        rows = data["kernels"]
        for row in rows:
            if row["name"] in self.us:
                row["measured_us"] = round(self.us[row["name"]], 3)
        timed = [row for row in rows if "measured_us" in row]
        data["measured"] = {
            "source": self.source,
            "launches": len(timed),
            "us": round(sum(row["measured_us"] for row in timed), 3),
            "predicted_us": round(sum(row["predicted_us"] for row in timed), 3),
            "notes": list(self.notes),
        }
        return data


def read_measured(path: str, program: Program, launches: Sequence[str]) -> Measured:
    """The times of launches in a file; an InputError if it holds none of them."""
    try:
        found = json.loads(read_text(path))
    except json.JSONDecodeError as e:
        raise InputError(
            file=path, line=e.lineno, expected=FORMAT, found="no JSON", code="TXT002"
        ) from None
    if isinstance(found, dict) and "traceEvents" not in found:
        made = _by_name(path, found, launches)
    else:
        slices = list(_slices(path, found))
        made = times_in_trace(slices, [program.op_by_name[name] for name in launches])
    if not made.us:
        known = ", ".join(launches[:3]) or "none: there are no launches"
        raise InputError(
            file=path,
            expected=f"times of launches ({known}, ...)",
            found="none of them",
            code="TXT002",
        )
    return Measured(made.us, path, made.notes)


def _by_name(path: str, found: Mapping[str, object], launches: Sequence[str]) -> Measured:
    known, us, others = set(launches), dict[str, float](), list[str]()
    for name, value in found.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < float(value) < float("inf"):  # type: ignore[arg-type]
            raise InputError(
                file=path,
                expected=f'microseconds for "{name}", a number above 0',
                found=json.dumps(value)[:60],
                code="TXT002",
            )
        if name in known:
            us[name] = float(value)  # type: ignore[arg-type]
        else:
            others.append(name)
    notes = [f"{len(others)} names are no launch here: {_few(others)}"] if others else []
    return Measured(us, path, notes)


# ------------------------------------------------------------------------------- traces


def _slices(path: str, found: object) -> Iterator[TimedSlice]:
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise InputError(file=path, expected=FORMAT, found=type(events).__name__, code="TXT002")
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        name, start, us = event.get("name"), event.get("ts"), event.get("dur")
        if isinstance(name, str) and isinstance(start, int | float) and isinstance(us, int | float):
            args = event.get("args")
            link = args.get("External id") if isinstance(args, dict) else None
            on_device = str(event.get("cat", "")).lower() in DEVICE_EVENTS
            yield TimedSlice(name, float(start), float(us), on_device, link)


def times_in_trace(slices: Sequence[TimedSlice], launches: Sequence[Operation]) -> Measured:
    """The median time of each launch that the slices of a trace tell of."""
    by_name, of_link = _sorted_by_name(slices)
    users: dict[str, list[str]] = defaultdict(list)
    wanted = {op.name: list(_names(op, by_name)) for op in launches}
    for op in launches:
        for name in wanted[op.name]:
            users[name].append(op.name)
    us: dict[str, float] = {}
    notes: list[str] = []
    for op in launches:
        parts = []
        for name in wanted[op.name]:
            rows, ran = users[name], by_name[name]
            if len(ran) % len(rows):
                notes.append(f"{name} is {len(ran)} times in the trace, for {len(rows)} launches")
                continue
            mine = ran[rows.index(op.name) :: len(rows)]
            on_gpu = not op.device.startswith("cpu")
            parts.append(median(_length(one, of_link, on_gpu) for one in mine))
        if parts and len(parts) == len(wanted[op.name]):
            us[op.name] = sum(parts)
    return Measured(us, "", list(dict.fromkeys(notes)))


def _sorted_by_name(
    slices: Sequence[TimedSlice],
) -> tuple[dict[str, list[TimedSlice]], dict[object, float]]:
    """Slices by name in order of time, and what the GPU did for each operator."""
    by_name: dict[str, list[TimedSlice]] = defaultdict(list)
    of_link: dict[object, float] = defaultdict(float)
    for one in sorted(slices, key=lambda s: s.start):
        named = GENERATED.match(one.name)
        by_name[named[1] if named else one.name].append(one)
        if one.on_device and one.link is not None:
            of_link[one.link] += one.us
    return by_name, of_link


def _length(one: TimedSlice, of_link: Mapping[object, float], on_gpu: bool) -> float:
    """How long a slice took: an operator of a GPU as long as what it began there."""
    if on_gpu and not one.on_device and one.link in of_link:
        return of_link[one.link]
    return one.us


def _names(op: Operation, known: Mapping[str, object]) -> Iterator[str]:
    """The names in a trace that together are a launch: its own, else those of its parts."""
    for name in (op.name, plain(op.name)):
        if name in known:
            yield name
            return
    parts = [_part(leaf, known) for leaf in op.leaves if isinstance(leaf, Nest | Call)]
    if all(part is not None for part in parts):
        yield from [part for part in parts if part is not None]


def _part(leaf: Operation, known: Mapping[str, object]) -> str | None:
    names = [leaf.name, plain(leaf.name)]
    if isinstance(leaf, Call):
        words = leaf.target.removeprefix("torch.ops.").split(".")
        names += ["::".join(words[:2]), leaf.target] if len(words) > 1 else [leaf.target]
    return next((name for name in names if name in known), None)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
