"""A decision is a value with a code and the facts that were compared, never a bare bool.

def same_device(a, b):
    return YES if a.device == b.device else no("FUS004", left=a.device, right=b.device)

FUSE_RULES = (same_device, no_cycle)
verdict = check_rules(FUSE_RULES, a, b)      # the first refusal, or YES
str(verdict)                                 # no FUS004 left=cpu right=cuda:0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from treadle.core.errors import InputError, InternalError
from treadle.core.plain import Plain, as_plain

OK = "OK"


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """The answer of a rule: truthy when it agrees; the code says which rule spoke and why."""

    ok: bool
    code: str = OK
    facts: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.ok and self.code == OK:
            raise InternalError("a refusal needs a code: no('FUS004', left=..., right=...)")
        # A view of a private copy: whoever holds the dict that came in cannot change a verdict.
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))

    def __bool__(self) -> bool:
        return self.ok

    def __hash__(self) -> int:
        return hash((self.ok, self.code))  # facts may hold what cannot be hashed

    def __reduce__(self) -> tuple[Any, ...]:
        return Verdict, (self.ok, self.code, dict(self.facts))  # a view cannot be pickled

    def __str__(self) -> str:
        words = ["yes" if self.ok else "no"]
        if self.code != OK:
            words.append(self.code)
        words += [f"{name}={_show(value)}" for name, value in self.facts.items()]
        return " ".join(words)

    def __repr__(self) -> str:
        return f"Verdict({self.ok!r}, {self.code!r}, {dict(self.facts)!r})"

    def to_dict(self) -> dict[str, Plain]:
        """Return `{"ok", "code", "facts"}` with facts as plain JSON-able data."""
        return {"ok": self.ok, "code": self.code, "facts": as_plain(self.facts)}

    @classmethod
    def from_dict(cls, data: object, file: object = "verdict") -> Verdict:
        """Return the verdict that `to_dict` described; `file` is named if `data` is damaged."""
        if (
            isinstance(data, Mapping)
            and isinstance(ok := data.get("ok"), bool)
            and isinstance(code := data.get("code"), str)
            and isinstance(facts := data.get("facts"), Mapping)
            and (ok or code != OK)
        ):
            return cls(ok, code, facts)
        raise InputError(file=file, expected="a verdict with ok, code and facts", found=repr(data))


Rule: TypeAlias = Callable[..., Verdict]

YES = Verdict(True)


def yes(code: str = OK, **facts: object) -> Verdict:
    """Return an agreement with the facts that made it so."""
    return Verdict(True, code, facts)


def no(code: str, **facts: object) -> Verdict:
    """Return a refusal with the facts that were compared."""
    return Verdict(False, code, facts)


def check_rules(rules: Sequence[Rule], *args: object) -> Verdict:
    """Return the verdict of the first rule that refuses, or YES when none does."""
    for rule in rules:
        verdict = rule(*args)
        if not verdict:
            return verdict
    return YES


def explain_rules(rules: Sequence[Rule], *args: object) -> list[tuple[str, Verdict]]:
    """Return every rule's name and verdict, in order, also those after the first refusal."""
    return [(rule_name(rule), rule(*args)) for rule in rules]


def rule_name(rule: Rule) -> str:
    """Return the name a person knows the rule by; a partial has the name of its function."""
    while hasattr(rule, "func"):
        rule = rule.func
    return getattr(rule, "__name__", type(rule).__name__)


def _show(value: object) -> str:
    text = str(value)
    plain_word = text.isprintable() and " " not in text and text
    return text if plain_word else repr(text)
