"""Random torch functions as source text; every statement is tried in eager mode when it is added.

A case is two functions: `make(n)` builds the inputs (n is a size that a second run may change),
`function(...)` is compiled. The text stands alone: it needs `torch` and `F` and nothing else.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch_fuzz_ops as ops

LARGEST = 300.0
MOST_ELEMENTS = 6000
MOST_GIVEN = 1700
MOST_DIMENSIONS = 6
LONG = 28
"""Statements of a long function: long enough to be cut into several kernels."""
EPS = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1.3e-6, torch.float64: 1e-7}
SIZES = (("n", "1", "2", "3", "4", "0"), (6.0, 2.0, 3.0, 4.0, 2.0, 0.25))
"""Sizes of inputs and how often each is taken."""
DTYPES = (
    ("float32", 12), ("float64", 2), ("float16", 2), ("bfloat16", 3), ("int64", 3), ("int32", 2),
    ("int16", 1), ("int8", 1), ("uint8", 1), ("bool", 2),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A function and its inputs as text."""

    seed: int
    inputs: tuple[str, ...]
    """Statements of `make`, one per input, each giving x0, x1, ..."""
    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    n: int
    is_dynamic: bool = False
    errors: tuple[float, ...] = ()
    """How inexact each output may be: 0 for those that are rounded the same way everywhere."""
    noise: float = 0.0
    """The same for gradients and inputs that change."""

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs' names."""
        return tuple([f"x{k}" for k in range(len(self.inputs))])

    def without(self, position: int) -> Case:
        """The case without one of its statements."""
        return replace(self, lines=self.lines[:position] + self.lines[position + 1 :])


def text_of(case: Case) -> str:
    """The case as source text that stands alone."""
    names = ", ".join(case.names)
    made = "\n".join(f"    {line}" for line in case.inputs)
    body = "\n".join(f"    {line}" for line in case.lines)
    return (
        f"def make(n={case.n}):\n    torch.manual_seed({case.seed})\n{made}\n"
        f"    return [{names}]\n\n\ndef function({names}):\n{body}\n"
        f"    return [{', '.join(case.outputs)}]\n"
    )


def functions_of(case: Case) -> tuple[Any, Any]:
    """`make` and `function`, run from their text."""
    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(text_of(case), f"<case {case.seed}>", "exec"), space)
    return space["make"], space["function"]


def make_case(seed: int) -> Case:
    """The case of a seed, always the same one."""
    return Builder(seed).case()


def storage_of(x: Any) -> int:
    """What tensors that share memory have in common."""
    return int(x.untyped_storage()._cdata)


class Builder:
    """Adds one random statement after the other and keeps those eager mode accepts."""

    def __init__(self, seed: int) -> None:
        self.seed, self.r = seed, random.Random(seed)
        self.n = self.r.choice((2, 3, 4, 5, 2, 3, 4, 5, 17, 40))
        self.wants_grad = self.r.random() < 0.25
        self.is_dynamic = self.r.random() < 0.2
        self.inputs = self._inputs()
        self.lines: list[str] = []
        self.errors: dict[str, float] = {}
        self.space: dict[str, Any] = {}
        self._replay()

    def case(self) -> Case:
        """The finished case."""
        for _ in range(self.r.choice((self.r.randint(2, 12), self.r.randint(2, 12), LONG))):
            self._grow()
        outputs = self._outputs()
        errors = tuple([self.errors.get(name, 0.0) for name in outputs])
        noise = max([0.0, *self.errors.values()])
        return Case(
            self.seed, tuple(self.inputs), tuple(self.lines), tuple(outputs), self.n,
            self.is_dynamic, errors, noise,
        )  # fmt: skip

    # -- inputs ----------------------------------------------------------------------------
    def _inputs(self) -> list[str]:
        lines: list[str] = []
        for k in range(self.r.randint(1, 3)):
            if k and self.r.random() < 0.12:
                lines.append(f"x{k} = x{self.r.randrange(k)}")
            elif k and self.r.random() < 0.1:
                lines.append(f"x{k} = x{self.r.randrange(k)}.detach()[...]")
            else:
                lines.append(f"x{k} = {self._input()}")
        return lines

    def _input(self) -> str:
        rank = self.r.choices((0, 1, 2, 3, 4, 5, 6), (1, 4, 8, 6, 3, 1, 1))[0]
        sizes = [self.r.choices(*SIZES)[0] for _ in range(rank)]
        while math.prod([self.n if n == "n" else int(n) for n in sizes]) > MOST_GIVEN:
            sizes[sizes.index("n" if "n" in sizes else max(sizes))] = "2"
        dtype = self.r.choices([d for d, _ in DTYPES], [w for _, w in DTYPES])[0]
        shape = ", ".join(sizes) + ("," if rank == 1 else "")
        if dtype == "bool":
            text = f"torch.rand(({shape})) > 0.5"
        elif dtype in ops.INTS:
            low = 0 if dtype == "uint8" else -4
            text = f"torch.randint({low}, 5, ({shape}), dtype=torch.{dtype})"
        else:
            text = f"torch.randn(({shape})).to(torch.{dtype})"
        text = self._laid_out(f"({text})", rank)
        if self.wants_grad and dtype in ("float32", "float64"):
            text += ".requires_grad_()"
        return text

    def _laid_out(self, text: str, rank: int) -> str:
        """Now and then an input that is not contiguous."""
        how = self.r.random()
        if rank >= 2 and how < 0.15:
            return f"{text}.transpose(0, -1)"
        if rank >= 1 and how < 0.22:
            return f"{text}.repeat_interleave(2, -1)[..., ::2]"
        if rank >= 1 and how < 0.27:
            return f"{text}.repeat_interleave(2, 0)[1:]"
        if how < 0.31:
            return f"{text}.expand(2, *{text}.shape)"
        return text

    # -- statements ------------------------------------------------------------------------
    def _replay(self) -> None:
        """All statements so far on new inputs: undoes what a refused one has changed."""
        self.space = {"torch": torch, "F": torch.nn.functional, "n": self.n}
        torch.manual_seed(self.seed)
        for line in (*self.inputs, *self.lines):
            exec(line, self.space)

    def tensors(self) -> list[str]:
        """Names of all tensors, the later ones twice as often."""
        names = [k for k, v in self.space.items() if isinstance(v, torch.Tensor)]
        return [*names, *names[-4:]]

    def _grow(self) -> None:
        for _ in range(12):
            group = self.r.choices([g for _, g in ops.GROUPS], [w for w, _ in ops.GROUPS])[0]
            row = self.r.choice(group)
            x = self.r.choice(self.tensors())
            if fits(self.space[x], row.needs) and self._try(row, x):
                return

    def _try(self, row: ops.Row, x: str) -> bool:
        before = dict(self.space)
        try:
            filled, used = self._filled(row.text, x)
        except (LookupError, ValueError):
            return False
        name = f"v{len(self.lines)}"
        line = filled if row.is_statement else f"{name} = {filled}"
        error = max(self.errors.get(u, 0.0) for u in used)
        if row.mark == "!" and error:
            return False
        try:
            exec(line, self.space)
            result = self.space[x if row.is_statement else name]
            good = is_good(result) and all(map(is_good, self._values()))
        except Exception:
            good = False
        if good and error and not result.dtype.is_floating_point:
            good = False
        if not good:
            self._replay()
            return False
        self.lines.append(line)
        if row.mark == "~" and result.dtype.is_floating_point:
            narrow = [before[u].dtype for u in used] + [result.dtype]
            error = max([error, *[EPS.get(d, 0.0) for d in narrow]])
        for other, value in self.space.items():
            if isinstance(value, torch.Tensor) and storage_of(value) == storage_of(result):
                self.errors[other] = max(self.errors.get(other, 0.0), error)
        return True

    def _values(self) -> list[Any]:
        return [v for v in self.space.values() if isinstance(v, torch.Tensor)]

    # -- filling in ------------------------------------------------------------------------
    def _filled(self, text: str, x: str) -> tuple[str, list[str]]:
        value, used = self.space[x], [x]
        rank, r = value.dim(), self.r
        words: dict[str, Any] = {"x": x, "t": r.choice([d for d, _ in DTYPES])}
        words["d"] = d = r.randrange(rank) if rank else 0
        words["e"] = (d + r.randrange(1, rank)) % rank if rank > 1 else d
        if r.random() < 0.3 and rank:
            words["d"], words["e"] = words["d"] - rank, words["e"] - rank
        size = value.shape[d] if rank else 1
        words |= {"u": r.randint(0, rank), "n": size, "keep": r.random() < 0.5}
        words |= {"s": r.choice((0.5, 2, -1.5, 3)), "w": r.randint(0, 4), "k": r.choice((2, 3))}
        words |= {"a": r.randint(0, 2), "b": r.choice((1, 2, 3, -1)), "c": r.choice((1, 2, 3))}
        words |= {"p": r.randrange(max(size, 1)), "dims": self._dims(rank)}
        words["p0"] = r.randrange(max(value.shape[0], 1)) if rank else 0
        words["perm"] = ", ".join(map(str, r.sample(range(rank), rank)))
        words["shape"] = self._shape(value)
        words |= self._indices(value, x, d, rank)
        for key in ("y", "z"):
            if "{" + key + "}" in text:
                words[key] = self._like(value)
                used += [words[key]] if words[key] in self.space else []
        if "{m}" in text or "{m1}" in text:
            words["m"] = self._mask(value, x)
            words["m1"] = f"torch.arange({x}.shape[0]) % 2 == 0"
        return text.format(**words), used

    def _dims(self, rank: int) -> str:
        chosen = self.r.sample(range(rank), self.r.randint(1, rank)) if rank else []
        return "(" + "".join(f"{d}, " for d in chosen) + ")"

    def _shape(self, value: Any) -> str:
        """Other sizes with as many elements."""
        left, sizes = value.numel(), []
        for p in (2, 3, 2, 5, 4):
            if left % p == 0 and self.r.random() < 0.5 and left:
                sizes.append(p)
                left //= p
        sizes.insert(self.r.randint(0, len(sizes)), left)
        return ", ".join(map(str, sizes))

    def _indices(self, value: Any, x: str, d: int, rank: int) -> dict[str, str]:
        if not rank or not value.numel():
            return {}

        def picks(size: int) -> str:
            some = [self.r.randrange(size) for _ in range(self.r.randint(1, 4))]
            return f"torch.tensor({some})"

        size = value.shape[d]
        many = f"torch.arange({x}.numel()).reshape({x}.shape) % {size}"
        unique = f"torch.tensor({self.r.sample(range(size), self.r.randint(1, size))})"
        found = {"i": picks(size), "g": f"({many})", "i0": picks(value.shape[0]), "u1": unique}
        return found | ({"i1": picks(value.shape[1])} if rank > 1 else {})

    def _like(self, value: Any) -> str:
        fitting = [t for t in self.tensors() if broadcasts(self.space[t], value)]
        if self.r.random() < 0.15:
            return self.r.choice(("torch.tensor(2)", "torch.tensor(1.5)", "torch.tensor(True)"))
        return self.r.choice(fitting)

    def _mask(self, value: Any, x: str) -> str:
        fitting = [
            t
            for t in self.tensors()
            if self.space[t].dtype is torch.bool and broadcasts(self.space[t], value)
        ]
        if fitting and self.r.random() < 0.6:
            return self.r.choice(fitting)
        if value.dim():
            return f"(torch.arange({x}.shape[-1]) % 2 == 0)"
        return "torch.tensor(True)"

    # -- outputs ---------------------------------------------------------------------------
    def _outputs(self) -> list[str]:
        names = list(dict.fromkeys(self.tensors()))
        made = [name for name in names if name.startswith("v")]
        chosen = made[-3:] + [n for n in made[:-3] if self.r.random() < 0.25]
        if self.r.random() < 0.15 or not chosen:
            chosen.append(self.r.choice(names))
        return chosen


def broadcasts(y: Any, x: Any) -> bool:
    """Whether y broadcasts to the sizes of x."""
    if y.dim() > x.dim():
        return False
    pairs = zip(reversed(y.shape), reversed(x.shape), strict=False)
    return all(a in (1, b) for a, b in pairs)


def is_good(x: Any) -> bool:
    """Whether a value is small enough to go on with."""
    if not isinstance(x, torch.Tensor) or x.numel() > MOST_ELEMENTS:
        return False
    if x.dim() > MOST_DIMENSIONS:
        return False
    if x.is_floating_point() and x.numel():
        largest = float(x.detach().abs().max())
        return math.isfinite(largest) and largest < LARGEST
    return True


KINDS = {
    "f": lambda x: x.is_floating_point(),
    "i": lambda x: x.dtype in INT_TYPES,
    "b": lambda x: x.dtype is torch.bool,
    "n": lambda x: x.dtype is not torch.bool,
    "1+": lambda x: x.dim() >= 1,
    "2+": lambda x: x.dim() >= 2,
    "3+": lambda x: x.dim() >= 3,
    "some": lambda x: x.numel() > 0,
    "two": lambda x: x.dim() >= 1 and min(x.shape) >= 2,
}
INT_TYPES = tuple([getattr(torch, t) for t in ops.INTS])


def fits(x: Any, needs: str) -> bool:
    """Whether a tensor is what a template needs."""
    return all(KINDS[word](x) for word in needs.split())
