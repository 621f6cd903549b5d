"""`treadle run PACKAGE`: run a package on arrays from files or on random ones, and time it."""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treadle.core.errors import InputError, UsageError
from treadle.core.writing import Outputs, unwritable
from treadle.index import IndexSyntaxError, as_expr, parse
from treadle.ir.types import DType, dtype
from treadle.lab.output import emit, human_bytes, table
from treadle.runtime.packages.arrays import WRONG, numpy_type
from treadle.runtime.packages.load import Package, load_package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `run`."""
    parser.add_argument("package", metavar="PACKAGE", help="what `treadle compile` wrote")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE.npy",
        help="an input, in order or by name; bf16 as whole numbers of 16 bits",
    )
    parser.add_argument(
        "--random", type=int, metavar="SEED", help="random inputs (whole numbers are 0 or 1)"
    )
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=N", help="a size for --random"
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run N times")
    parser.add_argument("--weights", metavar="FILE.npz", help="weights by name, instead of its own")
    parser.add_argument("--torch-library", metavar="FILE", help="libtorch_cpu.so, if it is needed")
    parser.add_argument("--output", metavar="FILE", help="write results: .npy for one, else .npz")


def run(args: argparse.Namespace) -> int:
    """Load, run, say what came out and how long it took."""
    outputs = Outputs({"--output": args.output}, [_file(text) for text in args.input])
    if args.repeat < 1:
        raise UsageError(f"--repeat cannot be {args.repeat}: expected 1 or more", code="OPT002")
    if args.output is not None and not args.output.endswith((".npy", ".npz")):
        raise UsageError(f"--output {args.output}: expected .npy or .npz", code="OPT002")
    weights = None if args.weights is None else dict(_arrays(args.weights))
    package = load_package(args.package, weights=weights, torch_library=args.torch_library)
    named = _inputs(args, package)
    if args.output is not None and args.output.endswith(".npy") and len(package.outputs) != 1:
        message = f"--output {args.output}: {len(package.outputs)} results need an .npz"
        raise UsageError(message, code="OPT002")
    times, results = [], []
    for _ in range(args.repeat):
        began = time.perf_counter()
        results = package.results(**named)
        times.append(time.perf_counter() - began)
    rows = [_row(one, array) for one, array in zip(package.outputs, results, strict=True)]
    micro = sorted(t * 1e6 for t in times)
    data: dict[str, object] = {
        "package": package.name,
        "results": rows,
        "runs": len(times),
        "microseconds": {
            "first": times[0] * 1e6,
            "least": micro[0],
            "median": micro[len(micro) // 2],
        },
        "held_bytes": package.held_bytes,
    }
    cells = [
        (r["name"], r["type"], r["mean"], r["least"], r["most"], r["sha256"][:12]) for r in rows
    ]
    lines = [*table(cells, ("result", "type", "mean", "least", "most", "sha256"))]
    lines.append(
        f"{len(times)} run{'s' * (len(times) != 1)}: {times[0] * 1e6:,.1f} us the first,"
        f" {micro[len(micro) // 2]:,.1f} us in the middle, {human_bytes(package.held_bytes)} held"
    )
    _save(outputs, args.output, package, results)
    emit(args.json, data, lines)
    return 0


# ------------------------------------------------------------------------------- inputs


def _file(text: str) -> str:
    name, equals, file = text.partition("=")
    return file if equals and name.isidentifier() else text


def _inputs(args: argparse.Namespace, package: Package) -> dict[str, Any]:
    """Every input by name, from files or random."""
    names = [str(one["name"]) for one in package.inputs]
    found: dict[str, Any] = {}
    order = iter(names)
    for text in args.input:
        name, equals, file = text.partition("=")
        if not (equals and name in names):
            file = (
                text if not (equals and name.isidentifier() and not os.path.exists(text)) else file
            )
            if file != text:
                raise UsageError(f"there is no input '{name}': {', '.join(names)}", code=WRONG)
            name = next((n for n in order if n not in found), "")
            if not name:
                raise UsageError(f"{file} is one input too many: {', '.join(names)}", code=WRONG)
        found[name] = _array(file)
    if args.random is None:
        if missing := [n for n in names if n not in found]:
            message = f"input '{missing[0]}' is missing: say --input FILE.npy or --random SEED"
            raise UsageError(message, code=WRONG)
        return found
    sizes = _sizes(args, package)
    return {**dict(_random(package, sizes, args.random, set(found))), **found}


def _array(file: str) -> Any:
    import numpy as np

    try:
        found = np.load(file, allow_pickle=False)
    except OSError as e:
        raise InputError(
            file=file, expected="an .npy file", found=e.strerror or "another", code="TXT002"
        ) from None
    except (ValueError, EOFError, SyntaxError, MemoryError):
        raise InputError(
            file=file, expected="an .npy file of numbers", found="something else", code="TXT002"
        ) from None
    if not isinstance(found, np.ndarray):
        raise InputError(file=file, expected="an .npy file", found="an .npz file", code="TXT002")
    return found


def _arrays(file: str) -> Iterator[tuple[str, Any]]:
    import zipfile

    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as found:
            for name in found.files:
                yield name, found[name]
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile):
        raise InputError(
            file=file, expected="an .npz file of arrays", found="another file", code="TXT002"
        ) from None


def _sizes(args: argparse.Namespace, package: Package) -> dict[str, int]:
    known = {str(one["name"]): int(one["likely"]) for one in package.manifest["sizes"]}
    for text in args.size:
        name, _, number = text.partition("=")
        if name not in known or not number.isdecimal():
            expected = ", ".join(f"{n}=N" for n in known) or "none: it has no such sizes"
            raise UsageError(f"--size cannot be '{text}': expected {expected}", code="OPT002")
        known[name] = int(number)
    return known


def _random(
    package: Package, sizes: Mapping[str, int], seed: int, given: set[str]
) -> Iterator[tuple[str, Any]]:
    import numpy as np

    numbers = np.random.default_rng(abs(seed))
    for one in package.inputs:
        shape = [_size(n, sizes) for n in one["shape"]]
        element = dtype(str(one["dtype"]))
        try:
            if element.is_float:
                made = as_type(numbers.standard_normal(shape, dtype=np.float32), element)
            else:
                made = numbers.integers(0, 2, shape).astype(numpy_type(element))
        except (MemoryError, ValueError):
            message = f"input '{one['name']}' with shape {shape} does not fit into memory"
            raise UsageError(message, code=WRONG) from None
        if one["name"] not in given:
            yield str(one["name"]), made


def _size(n: int | str, sizes: Mapping[str, int]) -> int:
    if isinstance(n, int):
        return n
    try:
        found = parse(n, {name: as_expr(value) for name, value in sizes.items()}).value
    except IndexSyntaxError:
        found = None
    if found is None:
        raise UsageError(f"a size '{n}' cannot be read", code="PKG001")
    return found


def as_type(array: Any, element: DType) -> Any:
    """Numbers of f32 in an element type; those numpy lacks are rounded to it, as bits."""
    import numpy as np

    found = numpy_type(element)
    if element is DType.BF16 and found == np.uint16:
        bits = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    if element.is_float and element.bits == 8 and found == np.uint8:
        return np.where(array < 0, 0xB8, 0x38).astype(np.uint8)  # -1 and 1 in either form, nearly
    return array.astype(found)


# ------------------------------------------------------------------------------- results


def _row(one: Mapping[str, Any], array: Any) -> dict[str, Any]:
    import numpy as np

    shape = ", ".join(map(str, array.shape))
    row = {"name": one["name"], "type": f"{one['dtype']}[{shape}]", "shape": list(array.shape)}
    values = _as_floats(array, dtype(str(one["dtype"])))
    for title, ask in (("mean", np.mean), ("least", np.min), ("most", np.max)):
        row[title] = f"{float(ask(values)):.6g}" if array.size else ""
    row["sha256"] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return row


def _as_floats(array: Any, element: DType) -> Any:
    import numpy as np

    if element is DType.BF16 and array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _save(outputs: Outputs, path: str | None, package: Package, results: Sequence[Any]) -> None:
    if path is None:
        return
    import io

    import numpy as np

    held = io.BytesIO()
    try:
        if path.endswith(".npy"):
            np.save(held, results[0])
        else:
            names = [str(one["name"]) for one in package.outputs]
            np.savez(held, **dict(zip(names, results, strict=True)))
    except OSError as e:
        raise unwritable(path, e) from None
    outputs.write_bytes("--output", held.getvalue())
