"""Measured times of collectives: from a calibration file, or from a trace of torch's profiler.

Between two measured sizes time is a straight line. Beyond them the model goes on, scaled so that
it meets the nearest measurement.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from statistics import median
from typing import Any, NamedTuple

from treadle.analysis.calibration import bad_calibration, calibration_of
from treadle.analysis.comm.kinds import CollectiveKind, named_kind
from treadle.core.reading import read_text

KINDS = tuple([kind.value for kind in CollectiveKind])


class MeasuredCollective(NamedTuple):
    """One measurement: a kind, ranks, the whole message in bytes, microseconds."""

    kind: str
    ranks: int
    message_bytes: int
    us: float


@dataclass(frozen=True)
class MeasuredTimes:
    """Measurements by kind and number of ranks, sizes ascending."""

    rows: Mapping[tuple[str, int], tuple[tuple[int, float], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Iterable[MeasuredCollective]) -> MeasuredTimes:
        """The median of what was measured for each kind, number of ranks and size."""
        sizes: dict[tuple[str, int], dict[int, list[float]]] = {}
        for one in found:
            row = sizes.setdefault((one.kind, one.ranks), {})
            row.setdefault(one.message_bytes, []).append(one.us)
        return cls(
            {
                key: tuple((size, median(times)) for size, times in sorted(row.items()))
                for key, row in sizes.items()
            }
        )

    def us(
        self, kind: str, ranks: int, message_bytes: int, model: Callable[[int], float]
    ) -> float | None:
        """The time of a message of this size; None if nothing like it was measured."""
        row = self.rows.get((kind, ranks))
        if row is None:
            return None
        at = bisect_left(row, (message_bytes, -1.0))
        if at < len(row) and row[at][0] == message_bytes:
            return row[at][1]
        if 0 < at < len(row):
            (low, before), (high, after) = row[at - 1], row[at]
            return before + (after - before) * (message_bytes - low) / (high - low)
        size, us = row[0] if at == 0 else row[-1]
        known = model(size)
        return us if known <= 0 else us * model(message_bytes) / known


def read_measured(file: str) -> MeasuredTimes:
    """What a calibration file says under "collectives" and the traces under "traces" show.

    What is said of a kind and a number of ranks stands; traces add the others.
    """
    data = calibration_of(file)
    rows, traces = data.get("collectives", []), data.get("traces", [])
    if not isinstance(rows, list):
        raise bad_calibration(file, 'a list under "collectives"', type(rows).__name__)
    if not isinstance(traces, list) or not all(isinstance(name, str) for name in traces):
        raise bad_calibration(file, 'a list of files under "traces"', json.dumps(traces)[:60])
    said = MeasuredTimes.of([_measured(file, number, row) for number, row in enumerate(rows)])
    shown = MeasuredTimes.of(
        [one for name in traces for one in _all_traced(os.path.join(os.path.dirname(file), name))]
    )
    return MeasuredTimes({**shown.rows, **said.rows})


def _measured(file: str, number: int, row: object) -> MeasuredCollective:
    where = f'entry {number} of "collectives"'
    if not isinstance(row, dict) or set(row) != {"kind", "ranks", "bytes", "us"}:
        raise bad_calibration(file, f"kind, ranks, bytes and us in {where}", json.dumps(row)[:60])
    if row["kind"] not in KINDS:
        wanted = f"one of {', '.join(KINDS)} for the kind in {where}"
        raise bad_calibration(file, wanted, json.dumps(row["kind"]))
    for key in ("ranks", "bytes", "us"):
        value = row[key]
        kinds = (int, float) if key == "us" else (int,)
        least = 1 if key == "ranks" else 0
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < inf:
            what = "a number" if key == "us" else "a whole number"
            wanted = f'{what} of at least {least} for "{key}" in {where}'
            raise bad_calibration(file, wanted, json.dumps(value))
    return MeasuredCollective(row["kind"], row["ranks"], row["bytes"], float(row["us"]))


ELEMENT_BYTES: Mapping[str, int] = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "byte": 1, "char": 1,
    "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""How torch's profiler calls element types."""

FUNCTIONAL = "_c10d_functional::"


def measured_in_trace(file: str) -> MeasuredTimes:
    """The collectives in a trace that torch's profiler exported (`export_chrome_trace`)."""
    return MeasuredTimes.of(_all_traced(file))


def _all_traced(file: str) -> list[MeasuredCollective]:
    try:
        data = json.loads(read_text(file, "COST001"))
    except (ValueError, RecursionError) as e:
        raise bad_calibration(file, "JSON", str(getattr(e, "msg", e))) from None
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise bad_calibration(file, 'a trace with "traceEvents"', type(data).__name__)
    found = [one for event in events if (one := _traced(event)) is not None]
    about = data.get("distributedInfo") if isinstance(data, dict) else None
    world = about.get("world_size") if isinstance(about, dict) else None
    return [*found, *_traced_gloo(events, world)]


def _traced_gloo(events: list[Any], world: object) -> Iterator[MeasuredCollective]:
    """What gloo ran: its events say how long, the calls that began them say what.

    They follow each other in the same order. Shapes must have been recorded.
    """
    spans = [e for e in events if isinstance(e, dict) and isinstance(e.get("dur"), int | float)]
    spans = sorted((e for e in spans if "ts" in e), key=lambda e: float(e["ts"]))
    begun = [e for e in spans if _is_begin(str(e.get("name")))]
    runs = [e for e in spans if str(e.get("name")).startswith("gloo:")]
    if len(begun) != len(runs):
        return  # others than functional collectives are among them: nobody can tell which
    for call, run in zip(begun, runs, strict=True):
        about = call.get("args")
        name = str(call["name"]).removeprefix(FUNCTIONAL)
        kind = named_kind(name)
        if kind is None or not isinstance(about, dict):
            continue
        size, ranks = _first_tensor_bytes(about), _ranks(about, world)
        if size and ranks:
            whole = size * ranks if kind is CollectiveKind.ALL_GATHER else size
            yield MeasuredCollective(kind.value, ranks, whole, float(run["dur"]))


def _is_begin(name: str) -> bool:
    return name.startswith(FUNCTIONAL) and not name.endswith("wait_tensor")


def _first_tensor_bytes(about: dict[str, Any]) -> int:
    """The bytes of what is sent; 0 if the event does not say."""
    types, shapes = about.get("Input type"), about.get("Input Dims")
    if not (isinstance(types, list) and isinstance(shapes, list) and types and shapes):
        return 0
    element, shape = str(types[0]).lower(), shapes[0]
    if element not in ELEMENT_BYTES or not isinstance(shape, list):
        return 0
    return prod(shape) * ELEMENT_BYTES[element] if all(type(n) is int for n in shape) else 0


def _ranks(about: dict[str, Any], world: object) -> int:
    """The size of the group, which gathers and scatters are told; else the job's."""
    given = about.get("Concrete Inputs")
    numbers = [str(n) for n in given if str(n).isdecimal()] if isinstance(given, list) else []
    if numbers:
        return int(numbers[0])
    return world if isinstance(world, int) else 0


def _traced(event: Any) -> MeasuredCollective | None:
    """The measurement in an event that says what was sent and how long it took, if it is one."""
    about = event.get("args") if isinstance(event, dict) else None
    if not isinstance(about, dict) or not isinstance(event.get("dur"), int | float):
        return None
    if event.get("cat") in ("cpu_op", "user_annotation"):
        return None  # how long the launch took, not the collective
    kind = named_kind(str(about.get("Collective name", "")))
    ranks, element = about.get("Group size"), str(about.get("dtype", "")).lower()
    numbers = [about.get("In msg nelems"), about.get("Out msg nelems")]
    if kind is None or not isinstance(ranks, int) or element not in ELEMENT_BYTES:
        return None
    elements = [n for n in numbers if isinstance(n, int)]
    if not elements:
        return None
    # The whole message is the larger side of a gather and of a scatter.
    return MeasuredCollective(
        kind.value, ranks, max(elements) * ELEMENT_BYTES[element], float(event["dur"])
    )
