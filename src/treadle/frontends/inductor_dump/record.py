"""Record what TorchInductor compiles in this process: its programs and its fusion decisions.

    with record() as recording:
        compiled(x)
    graph = recording.graphs[0]
    graph.pre, graph.post        # dumps before and after fusion, parsed when asked for
    graph.decisions              # Decision(first="op0", second="op1", fused=True, reason="") ...
    graph.program                # the scheduled program, executable here

Inductor tells all of it to three loggers; recording listens there. What those loggers print, and
to whom, stays as it was. Caches are off meanwhile, since a graph that comes from one is not
scheduled again; levels, handlers and settings come back at the end, also after an exception.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module

from treadle.frontends.inductor_dump.import_program import import_program
from treadle.frontends.inductor_dump.model import InductorDump
from treadle.frontends.inductor_dump.parse import parse_dump
from treadle.ir.program import Program

BEFORE, AFTER = "BEFORE FUSION", "AFTER FUSION"
_REFUSED = re.compile(r"cannot fuse (\S+) with (\S+): (.*)", re.DOTALL)
_SLOWER = re.compile(r"cannot fuse \(benchmark\): fusing (.+?) with (.+?) (cause .*)", re.DOTALL)
_FUSED = re.compile(r"fusing (\S+) with (\S+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# Everything that differs between versions of torch is in these two tables; what a version does
# not have is left alone. The same from torch 2.6 on.
LOGGERS = (
    "torch._inductor.debug.__ir_pre_fusion",
    "torch._inductor.debug.__ir_post_fusion",
    "torch._inductor.scheduler.__fusion",
)
# Not `force_disable_caches`: that also turns off profiles of earlier runs, and warns about it.
WITHOUT_CACHES = (
    ("torch._inductor.config", "fx_graph_cache", False),
    ("torch._inductor.config", "fx_graph_remote_cache", False),
    ("torch._functorch.config", "enable_autograd_cache", False),
    ("torch._functorch.config", "enable_remote_autograd_cache", False),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Two nodes that were looked at: fused, or not and why."""

    first: str
    second: str
    fused: bool
    reason: str = ""


@dataclass
class RecordedGraph:
    """One graph as it was scheduled; `post_text` is empty if scheduling did not come to its end."""

    pre_text: str = ""
    post_text: str = ""
    decisions: list[Decision] = field(default_factory=list)

    @cached_property
    def pre(self) -> InductorDump:
        """The graph before fusion."""
        return parse_dump(self.pre_text, "before fusion")

    @cached_property
    def post(self) -> InductorDump:
        """The graph after fusion."""
        return parse_dump(self.post_text, "after fusion")

    @cached_property
    def program(self) -> Program:
        """The graph after fusion as a program with the peer's groups."""
        return import_program(self.post).program


@dataclass
class Recording:
    """The graphs, in the order in which scheduling them began."""

    graphs: list[RecordedGraph] = field(default_factory=list)


@contextmanager
def record(*, fresh: bool = True) -> Iterator[Recording]:
    """Record every graph that Inductor compiles in this process until the block ends.

    With `fresh`, functions that were compiled before are compiled again when they are called next;
    without, calls of such functions leave no trace.
    """
    import torch
    import torch._dynamo
    import torch._inductor.debug
    import torch._inductor.scheduler  # its loggers exist from here on

    recording = Recording()
    with ExitStack() as stack:
        for module, setting, value in WITHOUT_CACHES:
            _patch(stack, module, setting, value)
        if fresh:
            torch._dynamo.reset()
        listener = _Listener(recording)
        for name in LOGGERS:
            stack.enter_context(_listening(logging.getLogger(name), listener))
        yield recording


def _patch(stack: ExitStack, module: str, setting: str, value: bool) -> None:
    try:
        config = import_module(module)
    except ImportError:
        return
    if hasattr(config, setting):
        stack.enter_context(config.patch({setting: value}))


@contextmanager
def _listening(logger: logging.Logger, listener: logging.Handler) -> Iterator[None]:
    """Add a handler that hears everything; nobody else hears more than before."""
    level, propagate = logger.level, logger.propagate
    known = [(handler, handler.level) for handler in logger.handlers]
    heard = logger.getEffectiveLevel()
    try:
        for handler, own in known:
            handler.setLevel(max(own, heard))
        if heard > logging.DEBUG:
            logger.propagate = False
        logger.setLevel(logging.DEBUG)
        logger.addHandler(listener)
        with _passed_on(logger, heard, propagate):
            yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagate
        for handler, own in known:
            handler.setLevel(own)


@contextmanager
def _passed_on(logger: logging.Logger, heard: int, propagate: bool) -> Iterator[None]:
    """Give what would have reached the parents of the logger to them, and nothing more."""
    if not propagate or heard <= logging.DEBUG or logger.parent is None:
        yield
        return
    messenger = _Messenger(logger.parent, heard)
    logger.addHandler(messenger)
    try:
        yield
    finally:
        logger.removeHandler(messenger)


class _Messenger(logging.Handler):
    """Hands records of a level or above to another logger's handlers."""

    def __init__(self, to: logging.Logger, level: int) -> None:
        super().__init__(level)
        self.to = to

    def emit(self, record: logging.LogRecord) -> None:
        self.to.callHandlers(record)


class _Listener(logging.Handler):
    """Puts messages into graphs. Graphs may nest (subgraphs) and threads may compile at once."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(logging.DEBUG)
        self.recording = recording
        self.open: dict[int | None, list[RecordedGraph]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Take one message; a message of a kind unknown here is no error."""
        message = _COLOUR.sub("", record.getMessage())
        graphs = self.open.setdefault(record.thread, [])
        title, _, text = message.partition("\n")
        if title == BEFORE:
            graphs.append(self._new())
            graphs[-1].pre_text = text
        elif title == AFTER:
            graph = graphs.pop() if graphs else self._new()
            graph.post_text = text
        elif graphs and (decision := decision_in(message)):
            graphs[-1].decisions.append(decision)

    def _new(self) -> RecordedGraph:
        self.recording.graphs.append(RecordedGraph())
        return self.recording.graphs[-1]


def decision_in(message: str) -> Decision | None:
    """The decision that a message of the fusion logger tells, if it tells one."""
    for pattern in (_SLOWER, _REFUSED):
        if found := pattern.fullmatch(message):
            return Decision(found[1], found[2], False, found[3])
    if found := _FUSED.fullmatch(message):
        return Decision(found[1], found[2], True)
    return None
