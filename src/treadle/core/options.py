"""Every option of Treadle, and the only reader of environment variables.

To add an option, add one field to `Options`: default, documentation, allowed values and the
environment variable (if any) stand in that one place; checks, `make`, `from_env`, `describe`
and the error texts follow from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from treadle.core.errors import UsageError
from treadle.core.option_values import (
    Allowed,
    AnyText,
    ByteCount,
    ByteCountOrAuto,
    Flag,
    OneOf,
    RegularExpression,
    WholeNumber,
)
from treadle.core.sizes import parse_bytes
from treadle.core.suggest import nearest, suggestion_notes

PREFIX = "TREADLE_"


def _option(default: object, doc: str, allowed: Allowed, variable: str | None = None) -> Any:
    return field(default=default, metadata={"doc": doc, "allowed": allowed, "variable": variable})


class OptionRow(NamedTuple):
    """One option as `treadle env` lists it; `variable` is None where there is none."""

    name: str
    value: object
    default: object
    variable: str | None
    allowed: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for; values are checked whichever way an instance is made."""

    check: int = _option(
        1,
        "0 nothing, 1 stage spec after each changed pass, 2 also the dependence certificate,"
        " 3 also the meaning, by the interpreter",
        WholeNumber(0, 3),
        "TREADLE_CHECK",
    )
    debug: int = _option(
        0,
        "0 quiet, 1 summary per program, 2 per pass, 3 every accepted decision, 4 every rejected"
        " one, 5 program text after each changed pass",
        WholeNumber(0, 5),
        "TREADLE_DEBUG",
    )
    dump: str | None = _option(
        None,
        "folder that receives the program text after each changed pass",
        AnyText("a folder"),
        "TREADLE_DUMP",
    )
    dump_pass: str | None = _option(
        None,
        "dump only after passes whose name matches",
        RegularExpression(),
        "TREADLE_DUMP_PASS",
    )
    stop_after: int | None = _option(
        None,
        "run only so many passes; halving it finds the pass that breaks a program",
        WholeNumber(0),
        "TREADLE_STOP_AFTER",
    )
    policy: str = _option(
        "balanced",
        "what fusion may do and must not cost: balanced, fast, memory, inductor",
        OneOf("balanced", "fast", "memory", "inductor"),
        "TREADLE_POLICY",
    )
    accounting: str = _option(
        "ours",
        "how bytes are counted: ours; dump leaves out inputs; inductor as its estimators do",
        OneOf("ours", "dump", "inductor"),
        "TREADLE_ACCOUNTING",
    )
    strict: bool = _option(
        False,
        "a graph of torch's that cannot be compiled is an error; otherwise torch runs it",
        Flag(),
        "TREADLE_STRICT",
    )
    memory_limit: int | None = _option(
        None,
        "bytes that a program may hold at once: what fusion may spend memory up to, instead of a"
        " little over the given peak; in training the backward computes activations again instead"
        " of keeping them, as far as it takes",
        ByteCount(1),
        "TREADLE_MEMORY_LIMIT",
    )
    regather: str = _option(
        "auto",
        "whether the backward gathers weights in shards again instead of keeping them whole: auto"
        " as far as `memory_limit` takes it, never, always",
        OneOf("auto", "never", "always"),
        "TREADLE_REGATHER",
    )
    numerics: str = _option(
        "torch",
        "how exact a graph of torch's is computed: torch as torch promises it, exact as the"
        " interpreter does, every operation and every sum rounded once",
        OneOf("torch", "exact"),
        "TREADLE_NUMERICS",
    )
    explain: bool = _option(
        False,
        "on a refusal, also ask the rules after the first one that refused",
        Flag(),
    )
    seed: int = _option(
        0,
        "start of every pseudo-random choice",
        WholeNumber(0),
    )
    target: str | None = _option(
        None,
        "machine that decisions are made for: cpu, a100, h100, h200, b200, mi300, or one that the"
        " calibration file adds; unset: h100 for what runs on a GPU",
        AnyText("a machine"),
        "TREADLE_TARGET",
    )
    cost_file: str | None = _option(
        None,
        "calibration measured on this machine, for the cost model",
        AnyText("a file"),
        "TREADLE_COST_FILE",
    )

    comm: str = _option(
        "simple",
        "how collectives are ordered: simple starts them early and waits late, in their order and"
        " within the peak; model simulates them on `hardware` and looks for the shortest run;"
        " exact also proves the order of small programs to be the best, with OR-tools",
        OneOf("simple", "model", "exact"),
        "TREADLE_COMM",
    )
    hardware: str | None = _option(
        None,
        "machines that ranks run on, for predicted communication: h100-8, h200-8, a100-8, b200-8,"
        " pcie-8, gloo-8, several nodes as h100-8x16, or one that the calibration file adds; unset:"
        " by the device",
        AnyText("hardware"),
        "TREADLE_HARDWARE",
    )
    world: int | None = _option(
        None,
        "ranks of the job, for predicted communication; unset: all that the hardware has",
        WholeNumber(1, 1 << 20),
        "TREADLE_WORLD",
    )
    bucket: int | str | None = _option(
        None,
        "send small collectives of a group together, up to so many bytes; auto: of the size that"
        " simulation finds best on `hardware`; unset: each by itself",
        ByteCountOrAuto(1),
        "TREADLE_BUCKET",
    )
    split: bool = _option(
        False,
        "send large collectives of several tensors in parts, where simulation on `hardware` says"
        " that this is done sooner",
        Flag(),
        "TREADLE_SPLIT",
    )
    in_flight: int | None = _option(
        None,
        "bytes of messages that may be under way at once, for orders by model, the largest message"
        " at least; unset: as many as memory holds",
        ByteCount(1),
        "TREADLE_IN_FLIGHT",
    )
    prefetch: int | None = _option(
        None,
        "kernels that may run between the start of a collective and its wait, for orders by model;"
        " unset: as many as pay and memory allows",
        WholeNumber(0),
        "TREADLE_PREFETCH",
    )
    products: str = _option(
        "auto",
        "who multiplies matrices on a CPU: kernels where they are faster than calls (auto), or"
        " always the library",
        OneOf("auto", "library"),
        "TREADLE_PRODUCTS",
    )
    host: str = _option(
        "auto",
        "who carries out a compiled graph on the CPU: a function in C (c), Python (python), or C"
        " once a graph has run twice (auto)",
        OneOf("auto", "c", "python"),
        "TREADLE_HOST",
    )
    reuse: int = _option(
        128 << 20,
        "bytes of large results of graphs without gradients that a process may hold for its next"
        " runs, on a CPU, instead of giving them back to the system; 0: none",
        ByteCount(0),
        "TREADLE_REUSE",
    )
    code: str = _option(
        "auto",
        "what kernels on the CPU are written in: C (auto, c), or Triton, which its interpreter runs"
        " slowly: to try GPU kernels without a GPU",
        OneOf("auto", "c", "triton"),
        "TREADLE_CODE",
    )
    record: bool = _option(
        True,
        "on a GPU, record the launches of a graph and replay them in one (CUDA graphs) as soon as"
        " memory lies where it lay before; nothing is copied for it",
        Flag(),
        "TREADLE_RECORD",
    )
    channels_last: bool = _option(
        True,
        "on a GPU, let convolutions go through memory with the channels last, where they are"
        " faster; what the caller sees keeps the strides of eager mode",
        Flag(),
        "TREADLE_CHANNELS_LAST",
    )
    autotune: bool = _option(
        True,
        "on a GPU, measure schedules that the cost model finds about as fast, before a graph first"
        " runs, and keep what is found out for later runs; otherwise take the model's word",
        Flag(),
        "TREADLE_AUTOTUNE",
    )
    tuned: str | None = _option(
        None,
        "file of what was measured elsewhere (`treadle cache export`): its answers come first, also"
        " where nothing is measured",
        AnyText("a file"),
        "TREADLE_TUNED",
    )
    report: str | None = _option(
        None,
        "file that receives a page with what was decided about each graph of torch's, and why",
        AnyText("a file"),
        "TREADLE_REPORT",
    )
    report_times: bool = _option(
        True,
        "measure each kernel of a graph on the CPU for the page that `report` writes: on memory of"
        " its own, for a moment each; nothing of the model runs",
        Flag(),
        "TREADLE_REPORT_TIMES",
    )
    cc: str | None = _option(
        None,
        "C compiler, with leading arguments if any; unset: the first of cc, gcc, clang, zig",
        AnyText("a command"),
        "CC",
    )
    cache_dir: str | None = _option(
        None,
        "folder that keeps compiled code between runs; unset: one in the user's cache folder",
        AnyText("a folder"),
        "TREADLE_CACHE_DIR",
    )
    cache_limit: int = _option(
        1 << 30,
        "bytes of compiled code to keep; what was not used for longest goes first",
        ByteCount(0),
        "TREADLE_CACHE_LIMIT",
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None and one.default is None:
                continue
            allowed = one.metadata["allowed"]
            is_text = isinstance(value, str) and not allowed.accepts(value)
            if isinstance(allowed, ByteCount) and is_text:
                value = _bytes_of(one.name, value, one.metadata)
                object.__setattr__(self, one.name, value)
            if not allowed.accepts(value):
                raise _bad_value(f"option {one.name}", value, one.metadata)

    @classmethod
    def make(cls, **values: Any) -> Options:
        """Return options with these values; an unknown name is refused with the known ones."""
        _refuse_unknown(values)
        return cls(**values)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Options:
        """Return what the environment asks for; a variable that is unset or empty says nothing."""
        values = {}
        for one in fields(cls):
            variable, allowed = one.metadata["variable"], one.metadata["allowed"]
            text = environ.get(variable, "") if variable else ""
            if text == "":
                continue
            try:
                value = allowed.parse(text)
            except ValueError:
                raise _bad_value(variable, text, one.metadata) from None
            if not allowed.accepts(value):
                raise _bad_value(variable, text, one.metadata)
            values[one.name] = value
        return cls(**values)

    def with_(self, **changes: Any) -> Options:
        """Return a copy with some values changed: what the command line says over the rest."""
        _refuse_unknown(changes)
        return replace(self, **changes)

    def describe(self) -> list[OptionRow]:
        """Return one row per option, in the order of the fields."""
        return [
            OptionRow(
                name=one.name,
                value=getattr(self, one.name),
                default=one.default,
                variable=one.metadata["variable"],
                allowed=one.metadata["allowed"].describe(),
                doc=one.metadata["doc"],
            )
            for one in fields(self)
        ]


def unknown_variables(environ: Mapping[str, str] = os.environ) -> dict[str, tuple[str, ...]]:
    """Return variables that start like ours but mean nothing, each with the likely intended ones.

    They are reported, not refused: an old setting must not keep a program from running.
    """
    variables = (one.metadata["variable"] for one in fields(Options))
    # Compared without the prefix, which alone would make any two of them look alike.
    known = {name.removeprefix(PREFIX) for name in variables if name and name.startswith(PREFIX)}
    given = sorted(name.removeprefix(PREFIX) for name in environ if name.startswith(PREFIX))
    return {
        PREFIX + name: tuple(PREFIX + close for close in nearest(name, known))
        for name in given
        if name not in known
    }


def cache_folder(options: Options, environ: Mapping[str, str] = os.environ) -> str:
    """The folder for compiled code: the option, or the place where this user keeps caches."""
    if options.cache_dir is not None:
        return os.path.expanduser(options.cache_dir)
    caches = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(caches, "treadle")


def environment_with(
    changes: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment for a process of ours: this one's, with some variables set."""
    return {**environ, **changes}


def no_colour_asked(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the user wants plain text everywhere, in the ways most programs know."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"


def _bytes_of(name: str, text: str, metadata: Mapping[str, Any]) -> int:
    try:
        return parse_bytes(text)
    except ValueError:
        raise _bad_value(f"option {name}", text, metadata) from None


def _refuse_unknown(values: Mapping[str, object]) -> None:
    known = [one.name for one in fields(Options)]
    for name in values:
        if name not in known:
            notes = suggestion_notes(name, known, "options")
            raise UsageError(f"unknown option {name!r}", code="OPT001", notes=notes)


def _bad_value(who: str, value: object, metadata: Mapping[str, Any]) -> UsageError:
    return UsageError(
        f"{who} cannot be {value!r}",
        code="OPT002",
        notes=[f"allowed: {metadata['allowed'].describe()}", f"it sets: {metadata['doc']}"],
    )
