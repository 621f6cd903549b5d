"""What `treadle bench` is asked, and what it answers for one backend: plain data, JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

EAGER, OURS = "eager", "treadle"


@dataclass(frozen=True)
class Asked:
    """A model, how it is to run, and by whom."""

    target: str
    """`file.py:name`, or the name of a built-in model."""
    backends: tuple[str, ...]
    device: str = "cpu"
    dtype: str | None = None
    """What floating-point weights and inputs are converted to; None leaves them as they are."""
    train: bool = False
    threads: int = 1
    dynamic: bool = False
    rounds: int = 20
    timeout: float = 600.0
    """Seconds that one backend may take in all."""

    def only(self, backend: str) -> Asked:
        """The same of one backend alone."""
        return replace(self, backends=(backend,))

    def to_json(self) -> dict[str, Any]:
        """The question as plain data."""
        return {**asdict(self), "backends": list(self.backends)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Asked:
        """The question that `to_json` wrote down."""
        return cls(**{**data, "backends": tuple(data["backends"])})


@dataclass
class BenchRow:
    """One backend: how fast, how exact, how much memory, how long to compile."""

    backend: str
    failed: str | None = None
    """Why there are no figures, in one line."""
    ms: float | None = None
    """The median of the rounds in wall time; on CUDA between events of the GPU."""
    low_ms: float | None = None
    high_ms: float | None = None
    """The quartiles: half of the rounds lie between."""
    cpu_ms: float | None = None
    """The median in CPU time, of all threads: a busy machine disturbs it least."""
    eager_ms: float | None = None
    """Eager's median in the same process, its runs in between."""
    speed: float | None = None
    """Eager's median over this one's."""
    cpu_speed: float | None = None
    """The same in CPU time."""
    rounds: int = 0
    compile_s: float | None = None
    """Seconds of the first call, with empty caches."""
    compile_cpu_s: float | None = None
    """Its CPU seconds, other processes that it started included."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds by stage; other backends say only the total."""
    error: float | None = None
    """The largest relative L2 error of a result or gradient against a run in f64."""
    eager_error: float | None = None
    """The same of eager."""
    error_to_eager: float | None = None
    """The same of this backend, against eager instead of f64."""
    peak_predicted: int | None = None
    """Bytes held at most besides weights and inputs, said before the run."""
    peak_measured: int | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)
