"""Compiling a packed graph and writing its files, all at once or not at all."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle import __version__
from treadle.codegen.c.unit import FAST_FLAGS, FLAGS, Unit
from treadle.codegen.host_c.render import FLAGS as HOST_FLAGS
from treadle.codegen.package_c.render import (
    FLAGS as PACKAGE_FLAGS,
)
from treadle.codegen.package_c.render import (
    HIDDEN,
    LIBRARIES,
    WEIGHT_HEAD,
    PackageSource,
    render_package,
    weight_bytes,
)
from treadle.codegen.package_c.tables import PackedGraph, PackedTensor
from treadle.codegen.package_c.words import shown_constraint, shown_size
from treadle.core.errors import InputError, UsageError
from treadle.core.options import Options
from treadle.core.toolchain import SourcePart, compile_parts, why_not_compiled
from treadle.core.writing import unwritable
from treadle.runtime.launch_plan import LaunchPlan
from treadle.runtime.launch_plan_json import plan_to_json
from treadle.runtime.packages import manifest as about

FACTOR, WORD = 0x9E3779B97F4A7C15, 1 << 64
SUFFIX = ".treadle"


@dataclass(frozen=True)
class Contents:
    """Everything that goes into a package."""

    graph: PackedGraph
    unit: Unit
    plan: LaunchPlan
    result: Mapping[str, Any]
    """How the results are arranged."""
    read_weight: Callable[[int], bytes] | None = None
    """The bytes of a weight as they lie; None: the caller gives weights when it loads."""
    is_portable: bool = False
    """Whether any processor of this kind will do, rather than one like this."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Further files, by name, for reading."""


def write_package(contents: Contents, path: str, options: Options, force: bool = False) -> str:
    """Compile and write a package: a folder, or one file if the name ends in `.zip`."""
    refuse_to_replace(path, force)
    graph = contents.graph
    source = _rendered(contents)
    unit = contents.unit
    is_fast = unit.flags != FLAGS
    kernel_flags = (*unit.flags, "-O3" if is_fast else "-O2", HIDDEN)
    if contents.is_portable:
        kernel_flags = tuple([flag for flag in kernel_flags if flag != FAST_FLAGS[0]])
    parts = (
        SourcePart(source.kernels, kernel_flags),
        SourcePart(source.host, (*HOST_FLAGS, HIDDEN)),
        SourcePart(source.package, PACKAGE_FLAGS),
    )
    made = compile_parts(parts, libraries=LIBRARIES, options=options)
    if not made.verdict:
        raise UsageError(f"{path} cannot be made: {why_not_compiled(made.verdict)}", code="TOR003")
    with work_folder(path) as work:
        shutil.copyfile(made.path, os.path.join(work, f"{graph.name}.so"))
        _write_texts(work, contents, source)
        if contents.read_weight is not None and graph.weights:
            _write_weights(work, contents, source)
        _write_manifest(work, contents, source)
        put_in_place(work, path, force)
    return path


def refuse_to_replace(path: str, force: bool) -> None:
    """Refuse what is there already, unless it may be replaced and is a package."""
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        expected = "a file in a folder that exists"
        raise InputError(file=path, expected=expected, found="none", code="TXT002")
    if not os.path.lexists(path):
        return
    if not force:
        raise UsageError(f"{path} is there already: name another, or say --force", code="TXT003")
    is_package = os.path.exists(os.path.join(path, about.NAME))
    if os.path.isdir(path) and not is_package and os.listdir(path):
        raise UsageError(f"{path} is a folder that is no package", code="TXT003")


def _rendered(contents: Contents) -> PackageSource:
    graph, made = contents.graph, f"treadle {__version__}"
    has_file = contents.read_weight is not None
    return render_package(graph, contents.unit, _id(contents), made, has_file)


def _id(contents: Contents) -> str:
    kind = f"{__version__} {contents.is_portable} {contents.read_weight is not None}"
    text = f"{kind}\n{contents.graph!r}\n{contents.unit.text}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# ------------------------------------------------------------------------------- files


class work_folder:  # noqa: N801 - a context manager, used like a function
    """A folder beside the path that is to be, which is gone afterwards if it was not used."""

    def __init__(self, path: str) -> None:
        self.parent = os.path.dirname(os.path.abspath(path))
        self.path = path

    def __enter__(self) -> str:
        try:
            self.work = tempfile.mkdtemp(prefix=".treadle-", dir=self.parent)
            os.chmod(self.work, 0o755)
        except OSError as e:
            raise unwritable(self.path, e) from None
        return self.work

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        if isinstance(error, OSError):
            raise unwritable(self.path, error) from None


def _write_texts(work: str, contents: Contents, source: PackageSource) -> None:
    graph = contents.graph
    texts = {
        f"{graph.name}.h": source.header,
        "kernels.c": source.kernels,
        "host.c": source.host,
        "package.c": source.package,
        "plan.json": json.dumps(plan_to_json(contents.plan), indent=1) + "\n",
        **contents.more,
    }
    for name, text in texts.items():
        with open(os.path.join(work, name), "w", encoding="utf-8") as file:
            file.write(text)


def _write_weights(work: str, contents: Contents, source: PackageSource) -> None:
    """The weights one after the other, behind a head with their checksum."""
    assert contents.read_weight is not None, "there are weights to write"
    with open(os.path.join(work, "weights.bin"), "w+b") as file:
        file.write(bytes(WEIGHT_HEAD))
        for k, at in enumerate(source.weight_offsets):
            content = contents.read_weight(k)
            room = weight_bytes(contents.graph.weights[k])
            assert len(content) <= room, "a weight is as long as its layout says"
            file.seek(at)
            file.write(content)
        file.truncate(source.weight_file_bytes)
        file.seek(WEIGHT_HEAD)
        total = 0
        first = 0
        while block := file.read(about.BLOCK):
            total = (total + _sum_of_words(block, first)) % WORD
            first += len(block) // 8
        file.seek(0)
        file.write(
            b"TREADLEW" + total.to_bytes(8, "little") + (about.VERSION).to_bytes(8, "little")
        )
        file.write(_id(contents).encode())


def _sum_of_words(block: bytes, first: int) -> int:
    """What `checksum` of package.c adds up for some words, the first of which has this number."""
    import numpy as np

    words = np.frombuffer(block, dtype="<u8")
    places = np.arange(first, first + len(words), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    factors = places * np.uint64(FACTOR)
    return int(np.sum(words * factors, dtype=np.uint64))


def _write_manifest(work: str, contents: Contents, source: PackageSource) -> None:
    graph = contents.graph
    library = os.path.join(work, f"{graph.name}.so")
    rows = [
        {**_tensor(one, graph), "offset": at, "bytes": weight_bytes(one)}
        for one, at in zip(graph.weights, source.weight_offsets, strict=True)
    ]
    content = {
        "format": about.FORMAT,
        "version": about.VERSION,
        "name": graph.name,
        "id": _id(contents),
        "treadle": __version__,
        "platform": {**about.machine(), "features": _features(library, graph.name)},
        "torch": graph.torch_version,
        "sizes": [
            {
                "name": s.shown,
                "low": s.low,
                "high": s.high,
                "multiple_of": s.divisor,
                "likely": likely,
            }
            for s, likely in zip(graph.sizes, graph.likely_sizes, strict=True)
        ],
        "constraints": [shown_constraint(c, graph) for c in graph.constraints],
        "inputs": [_tensor(one, graph) for one in graph.inputs],
        "outputs": [_tensor(one, graph) for one in graph.outputs],
        "weights": rows,
        "weights_in": "weights.bin" if contents.read_weight is not None else "caller",
        "result": contents.result,
        "library": f"{graph.name}.so",
        "header": f"{graph.name}.h",
        "memory": {"bytes_at_likely_sizes": graph.likely_bytes, "blocks": len(graph.blocks)},
        "files": {name: file_card(os.path.join(work, name)) for name in sorted(os.listdir(work))},
    }
    with open(os.path.join(work, about.NAME), "w", encoding="utf-8") as file:
        file.write(about.as_text(content))


def _tensor(one: PackedTensor, graph: PackedGraph) -> dict[str, Any]:
    def numbers(exprs: Sequence[Any]) -> list[int | str]:
        return [e.value if e.value is not None else shown_size(e, graph) for e in exprs]

    return {
        "name": one.name,
        "dtype": one.dtype.text,
        "shape": numbers(one.layout.sizes),
        "strides": numbers(one.layout.strides),
        "changes": one.changes,
    }


def _features(library: str, name: str) -> list[str]:
    """What the processor must have, as the library itself says it."""
    ask = ctypes.CDLL(library)[f"treadle_{name}_features"]
    ask.restype = ctypes.c_char_p
    return str(ask().decode()).split()


def file_card(path: str) -> dict[str, Any]:
    """Bytes and digest of a file."""
    with open(path, "rb") as file:
        return {
            "bytes": os.path.getsize(path),
            "sha256": about.digest_of(iter(lambda: file.read(about.BLOCK), b"")),
        }


def put_in_place(work: str, path: str, force: bool) -> None:
    """What was made becomes the package, by one rename."""
    for name in os.listdir(work):
        with open(os.path.join(work, name), "rb") as file:
            os.fsync(file.fileno())
    if path.endswith(".zip"):
        packed = work + ".zip"
        try:
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
                for name in sorted(os.listdir(work)):
                    archive.write(os.path.join(work, name), name)
            os.replace(packed, path)
        finally:
            if os.path.exists(packed):
                os.unlink(packed)
        return
    old = work + ".old"
    refuse_to_replace(path, force)
    if os.path.lexists(path):
        os.rename(path, old)
    os.rename(work, path)
    if os.path.isdir(old) and not os.path.islink(old):
        shutil.rmtree(old, ignore_errors=True)
    elif os.path.lexists(old):
        os.unlink(old)
