"""A launch plan as JSON and back: what a package or another process is given.

plan_from_json(plan_to_json(plan)) == plan
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from treadle.core.errors import UsageError
from treadle.memory.problem import Place
from treadle.runtime.device_memory import DeviceMemory, Role, StorageLife
from treadle.runtime.launch_plan import (
    CallStep,
    ClearStep,
    LaunchPlan,
    LaunchStep,
    RecordedSteps,
    Step,
    Stream,
    TakeStep,
    WaitStep,
)

VERSION = 4
KINDS: Mapping[str, Callable[..., Step]] = {
    "launch": LaunchStep,
    "call": CallStep,
    "wait": WaitStep,
    "take": TakeStep,
    "clear": ClearStep,
}
"""What each kind of step is called."""
NAMES: Mapping[object, str] = {kind: name for name, kind in KINDS.items()}


def plan_to_json(plan: LaunchPlan) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "version": VERSION,
        "name": plan.name,
        "sizes": dict(plan.sizes),
        "steps": [{"kind": NAMES[type(s)], **_listed(asdict(s))} for s in plan.steps],
        "streams": [asdict(s) for s in plan.streams],
        "recordings": [asdict(r) for r in plan.recordings],
        "memory": [_memory_to_json(m) for m in plan.memory],
    }


def plan_from_json(data: Mapping[str, Any]) -> LaunchPlan:
    """The plan that `plan_to_json` wrote down; UsageError if that is none."""
    if data.get("version") != VERSION:
        raise UsageError(f"a launch plan of version {data.get('version')!r}; expected {VERSION}")
    try:
        return LaunchPlan(
            name=data["name"],
            steps=tuple([_step_from_json(one) for one in data["steps"]]),
            memory=tuple([_memory_from_json(one) for one in data["memory"]]),
            streams=tuple([Stream(**one) for one in data["streams"]]),
            recordings=tuple([RecordedSteps(**one) for one in data["recordings"]]),
            sizes=dict(data["sizes"]),
        )
    except (KeyError, TypeError, ValueError) as e:
        raise UsageError(f"this is no launch plan: {type(e).__name__}: {e}") from e


def _memory_to_json(m: DeviceMemory) -> dict[str, Any]:
    lives = [{**asdict(life), "role": life.role.name} for life in m.lives.values()]
    return {
        "device": m.device,
        "end": m.end,
        "lives": lives,
        "chains": [list(chain) for chain in m.chains],
        "places": {name: list(place) for name, place in m.places.items()},
        "arena_bytes": m.arena_bytes,
        "arena_lower_bound": m.arena_lower_bound,
        "hosts": list(m.hosts),
        "alone": sorted(m.alone),
        "closed": sorted(m.closed),
        "parts": [list(part) for part in m.parts],
    }


def _memory_from_json(data: Mapping[str, Any]) -> DeviceMemory:
    rows = [StorageLife(**{**row, "role": Role[row["role"]]}) for row in data["lives"]]
    outputs, donated = data["hosts"]
    return DeviceMemory(
        device=data["device"],
        end=data["end"],
        lives={row.storage: row for row in rows},
        chains=tuple([tuple(chain) for chain in data["chains"]]),
        places={name: Place(*place) for name, place in data["places"].items()},
        arena_bytes=data["arena_bytes"],
        arena_lower_bound=data["arena_lower_bound"],
        hosts=(outputs, donated),
        alone=frozenset(data["alone"]),
        closed=frozenset(data["closed"]),
        parts=tuple([(first, last) for first, last in data["parts"]]),
    )


def _step_from_json(data: Mapping[str, Any]) -> Step:
    fields: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "kind"
    }
    return KINDS[data["kind"]](**fields)


def _listed(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}
