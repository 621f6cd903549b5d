"""Why two operations are, or are not, one kernel, as one would tell a colleague: a sentence.

two kernels, op886 and op946: op890 and op894 must run between them (FUS010, would close a cycle)
as one kernel they would move 7.66 GiB less and take 5.892 instead of 8.348 ms, predicted
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from treadle.core.codes import load_codes
from treadle.core.tables import human_bytes, human_time
from treadle.core.verdict import Verdict
from treadle.schedule.explain import PairStory

Facts = Mapping[str, Any]
LONG_NAME = 60
LAUNCHES = "COM"
"""How codes begin that are about one launch for several kernels."""
KINDS = {
    "UserKernel": "a kernel of the user's",
    "Extern": "a library call",
    "Alloc": "an allocation",
}


def answer_lines(story: PairStory, names: Sequence[str]) -> Iterator[str]:
    """The answer, and what it is worth where that was compared."""
    if story.gone:
        yield f"not there after scheduling: {', '.join(story.gone)}"
        return
    if story.are_one:
        yield from _why_one(story)
        return
    kernels = " and ".join(_short(name) for name in story.kernels)
    verdict = deciding(story)
    if verdict is None:
        yield f"two kernels: {kernels}; each rule agrees about the two alone, but the search joined"
        yield "others first and did not come back to this pair"
        return
    title = load_codes()[verdict.code].title
    yield f"two kernels: {kernels}, because {_reason(verdict)} ({verdict.code}, {title})"
    yield from _worth(verdict.facts)


def deciding(story: PairStory) -> Verdict | None:
    """The refusal that keeps the two apart: the last of the search, else the first of the rules.

    That they do not share a launch either, which is asked last, is no answer to why they are two.
    """
    refused = [verdict for _, verdict in story.decided if not verdict]
    kernels = [verdict for verdict in refused if not verdict.code.startswith(LAUNCHES)]
    alone = [verdict for _, verdict in story.before if not verdict]
    found = kernels[-1:] or alone[:1] or refused[-1:]
    return found[0] if found else None


def _why_one(story: PairStory) -> Iterator[str]:
    agreed = [verdict for _, verdict in story.decided if verdict]
    name = _short(story.kernels[0])
    if agreed and agreed[-1].code == "COM000":
        yield f"one launch: {name}; they stay loops of their own, side by side (COM000)"
        return
    yield f"one kernel: {name}"
    facts: Facts = agreed[-1].facts if agreed else {}
    if facts.get("bytes"):
        yield f"so {human_bytes(int(facts['bytes']))} less are moved{_times(facts, ', ')}"


def _worth(facts: Facts) -> Iterator[str]:
    """What one kernel would save, if it could be."""
    if int(facts.get("bytes", 0)) > 0:
        saved = human_bytes(int(facts["bytes"]))
        yield f"as one kernel they would move {saved} less{_times(facts, ' and take ')}"


def _times(facts: Facts, before: str) -> str:
    apart, together = facts.get("apart_ns"), facts.get("together_ns")
    if apart is None or together is None:
        return ""
    return f"{before}{human_time(together / 1e3)} instead of {human_time(apart / 1e3)}, predicted"


def _reason(verdict: Verdict) -> str:
    words = REASONS.get(verdict.code)
    return words(verdict.facts) if words is not None else "a rule refuses"


def _no_loop(facts: Facts) -> str:
    kind = str(facts.get("kind", ""))
    return f"{facts.get('operation')} is {KINDS.get(kind, f'of kind {kind}')}"


def _points(facts: Facts) -> str:
    maps = f"{facts.get('left')} in one, {facts.get('right')} in the other"
    return f"they touch {facts.get('storage')} at different points: {maps}"


def _between(facts: Facts) -> str:
    names = [str(name) for name in facts.get("through", ())]
    said = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{said or 'something'} must run between them"


def _slower(facts: Facts) -> str:
    return f"one kernel would be slower{_times(facts, ': ')}"


REASONS: Mapping[str, Callable[[Facts], str]] = {
    "FUS001": _no_loop,
    "FUS007": lambda facts: "they have no data in common: one kernel would move as many bytes",
    "FUS008": _points,
    "FUS010": _between,
    "FUS011": lambda facts: "more would be live at the peak than the policy allows",
    "FUS012": lambda facts: "nothing less would be moved",
    "FUS014": _slower,
    "COM002": lambda facts: "one launch for both would save too little of their time",
}
"""Codes that can say more than their title."""


def _short(name: str) -> str:
    if len(name) <= LONG_NAME:
        return name
    return f"{name[:50]}... ({name.count('_') + 1} operations)"
