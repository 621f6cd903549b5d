"""What command lines say about inputs: `f32[8, 128]`, `0:0=batch[1..64]`, `batch=8`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.core.errors import UsageError
from treadle.ir.types import DTYPES, DType, dtype

TENSOR = re.compile(r"\s*([\w.]+)\s*\[\s*((?:\d+\s*(?:,\s*\d+\s*)*)?)\]\s*", re.ASCII)
DYNAMIC = re.compile(
    r"\s*(\w+)\s*:\s*(\d+)\s*=\s*([A-Za-z_]\w*)\s*(?:\[\s*(\d+)\s*\.\.\s*(\d*)\s*\])?\s*", re.ASCII
)
LARGEST = 1 << 40


@dataclass(frozen=True)
class TensorText:
    """An example input: its element type and shape."""

    dtype: DType
    shape: tuple[int, ...]


def tensor_text(text: str) -> TensorText:
    """An input as `--inputs` names it."""
    found = TENSOR.fullmatch(text)
    if found is None:
        message = f"--inputs cannot be '{text}': expected a type and a shape such as f32[8, 128]"
        raise UsageError(message, code="OPT002")
    if found[1].removeprefix("torch.") not in DTYPES:
        known = ", ".join(d.text for d in DType)
        raise UsageError(f"--inputs '{text}': unknown type '{found[1]}'; {known}", code="OPT002")
    shape = tuple([int(n) for n in found[2].split(",") if n.strip()])
    count = 1
    for n in shape:
        count *= max(n, 1)
    if count > LARGEST:
        raise UsageError(f"--inputs '{text}' is larger than any memory", code="OPT002")
    return TensorText(dtype(found[1]), shape)


def dynamic_texts(texts: Sequence[str]) -> dict[int | str, dict[int, object]]:
    """The sizes that `--dynamic` names, as `treadle.torch.package` takes them."""
    made: dict[int | str, dict[int, object]] = {}
    for text in texts:
        found = DYNAMIC.fullmatch(text)
        if found is None:
            message = f"--dynamic cannot be '{text}': expected INPUT:DIMENSION=NAME or NAME[1..64]"
            raise UsageError(message, code="OPT002")
        which: int | str = int(found[1]) if found[1].isdigit() else found[1]
        about: object = found[3]
        if found[4] is not None:
            low, high = int(found[4]), int(found[5]) if found[5] else None
            if high is not None and high < low:
                raise UsageError(f"--dynamic '{text}': {high} is less than {low}", code="OPT002")
            about = (found[3], low, high)
        made.setdefault(which, {})[int(found[2])] = about
    return made
