"""From a package on disk to something to call: verified, loaded, never traced.

    package = load_package("model.treadle")
    y = package(x)                      # arrays of numpy, tensors of torch, anything with DLPack
    package.inputs, package.outputs     # names, dtypes, shapes

Everything is verified before anything is loaded. What the package itself checks (types, sizes,
what must hold between them) it says in one line, which is raised as it is (PKG004).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from treadle.core.errors import TreadleError, UsageError
from treadle.ir.types import dtype
from treadle.runtime.packages import manifest as about
from treadle.runtime.packages.arrays import (
    WRONG,
    CTensor,
    given_tensor,
    is_torch,
    new_numpy,
    new_torch,
    refuse_shared,
)
from treadle.runtime.packages.manifest import BLOCK, digest_of


class PackageRunError(TreadleError):
    """A run of a package that failed: a kernel's own check, or a call of torch."""


class _Options(ctypes.Structure):
    """`treadle_options` of the header."""

    _fields_ = (
        ("folder", ctypes.c_char_p),
        ("torch_library", ctypes.c_char_p),
        ("weights", ctypes.POINTER(CTensor)),
        ("weight_count", ctypes.c_int64),
    )


def load_package(
    path: str | os.PathLike[str],
    *,
    weights: Mapping[str, Any] | None = None,
    torch_library: str | None = None,
) -> Package:
    """The package at a path, verified and ready to be called.

    `weights` stand in for the package's own, by name; `torch_library` is the file libtorch_cpu.so
    if the package calls torch and none is installed beside this Python.
    """
    folder = os.fspath(path)
    if os.path.isdir(folder):
        content, temporary = _read(os.path.join(folder, about.NAME)), None
        manifest = about.read_manifest(content, os.path.join(folder, about.NAME))
        _verify(folder, manifest)
    else:
        manifest, folder = _unpacked(folder)
        temporary = folder
    try:
        return Package(folder, manifest, weights, torch_library, temporary)
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(about.LONGEST)
    except OSError as e:
        raise about.damaged(path, "the manifest of a package", e.strerror or str(e)) from None


def _verify(folder: str, manifest: Mapping[str, Any]) -> None:
    """Every file is there and is what it was when it was written."""
    for name, card in _cards(manifest, folder):
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != card["bytes"]:
                    raise about.damaged(path, f"{card['bytes']} bytes", f"{size}")
                found = digest_of(iter(lambda file=file: file.read(BLOCK), b""))  # type: ignore[misc]
        except OSError as e:
            raise about.damaged(path, "a file of a package", e.strerror or str(e)) from None
        if found != card["sha256"]:
            raise about.damaged(path, "the content that the manifest names", "another content")


def _cards(manifest: Mapping[str, Any], file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, card in manifest["files"].items():
        is_plain = name and name == os.path.basename(name) and name not in (".", "..")
        if not is_plain or not isinstance(card, dict):
            raise about.damaged(file, "names of files", repr(name))
        yield name, card
    for wanted in (manifest["library"], manifest["header"]):
        if wanted not in manifest["files"]:
            raise about.damaged(file, f"the file {wanted} in its list", "none")


def _unpacked(path: str) -> tuple[dict[str, Any], str]:
    """The files of a package that is one file, in a folder of our own."""
    folder = tempfile.mkdtemp(prefix="treadle-package-")
    try:
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo(about.NAME)
            if entry.file_size > about.LONGEST:
                raise about.damaged(path, "a manifest", "a file that is far too long")
            manifest = about.read_manifest(archive.read(entry), path)
            for name, card in _cards(manifest, path):
                found = archive.getinfo(name)
                if found.file_size != card["bytes"]:
                    raise about.damaged(f"{path}: {name}", f"{card['bytes']} bytes", "others")
                with archive.open(found) as source, open(os.path.join(folder, name), "wb") as to:
                    shutil.copyfileobj(source, to, BLOCK)
        _verify(folder, manifest)
        return manifest, folder
    except BaseException as e:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(e, OSError):
            raise about.damaged(path, "a package", e.strerror or str(e)) from None
        if isinstance(
            e, zipfile.BadZipFile | KeyError | NotImplementedError | RuntimeError | EOFError
        ):
            raise about.damaged(path, "a package: a folder or a zip file", "another file") from None
        raise


class Package:
    """A graph that was compiled ahead of time: call it with arrays, in order or by name."""

    def __init__(
        self,
        folder: str,
        manifest: dict[str, Any],
        weights: Mapping[str, Any] | None = None,
        torch_library: str | None = None,
        temporary: str | None = None,
    ) -> None:
        self.manifest, self.name = manifest, str(manifest["name"])
        self.inputs: list[dict[str, Any]] = manifest["inputs"]
        self.outputs: list[dict[str, Any]] = manifest["outputs"]
        self._in = [dtype(one["dtype"]) for one in self.inputs]
        self._out = [dtype(one["dtype"]) for one in self.outputs]
        file = os.path.abspath(os.path.join(folder, manifest["library"]))
        try:
            self._library = _opened(file, self.name, str(manifest["id"]))
        except OSError as e:
            raise about.foreign(file, "a library that can be loaded here", str(e)) from None
        kept: list[Any] = []
        self._weights = kept  # what the caller gave must live as long as the package
        options = _Options(os.fsencode(folder), None, None, 0)
        if manifest.get("torch"):
            options.torch_library = os.fsencode(torch_library or _library_of_torch())
        if weights is not None or manifest["weights_in"] == "caller":
            records = list(self._given_weights(weights or {}, kept))
            options.weights = (CTensor * max(len(records), 1))(*records)
            options.weight_count = len(records)
        load = self._function("load", ctypes.c_void_p, ctypes.c_void_p)
        self._handle = load(ctypes.addressof(options))
        if not self._handle:
            raise about.foreign(file, "a package that can be loaded here", self._error())
        pointers = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        self._describe = self._function("describe", ctypes.c_int, *pointers)
        self._run = self._function("run", ctypes.c_int, *pointers)
        free = self._function("free", None, ctypes.c_void_p)
        self._end = weakref.finalize(self, _end, free, self._handle, temporary)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Run once; results are torch's if an input is, otherwise numpy's."""
        return _arranged(self.manifest["result"], self.results(*given, **named))

    def results(self, *given: Any, **named: Any) -> list[Any]:
        """Run once; the results one after the other, however the model arranged them."""
        values = self._ordered(given, named)
        kept: list[Any] = []
        records = (CTensor * max(len(values), 1))()
        for k, value in enumerate(values):
            one = self.inputs[k]
            records[k], keep = given_tensor(value, one["name"], self._in[k], one["changes"])
            kept.append(keep)
        changed = [bool(one["changes"]) for one in self.inputs]
        names = [str(one["name"]) for one in self.inputs]
        refuse_shared(list(records), list(zip(names, self._in, changed, strict=True)))
        new = new_torch if any(map(is_torch, values)) else new_numpy
        results = (CTensor * max(len(self._out), 1))()
        if self._describe(self._handle, records, results):
            raise UsageError(self._error(), code=WRONG)
        made = []
        for k, element in enumerate(self._out):
            try:
                results[k], array = new(results[k], element)
            except (MemoryError, RuntimeError, ValueError):
                sizes = list(results[k].sizes[: results[k].rank])
                raise PackageRunError(f"no memory for a result with sizes {sizes}") from None
            made.append(array)
        if self._run(self._handle, records, results):
            raise self._failure()
        return made

    def reset(self) -> None:
        """Weights that runs change are as they were when the package was loaded."""
        self._function("reset", None, ctypes.c_void_p)(self._handle)

    @property
    def held_bytes(self) -> int:
        """How many bytes the package holds for runs now."""
        return int(self._function("held", ctypes.c_int64, ctypes.c_void_p)(self._handle))

    # -- inside ----------------------------------------------------------------------------
    def _ordered(self, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The inputs in order; UsageError if one is missing, unknown or given twice."""
        names = [str(one["name"]) for one in self.inputs]
        shown = ", ".join(names) or "none"
        if len(given) > len(names):
            message = f"{self.name} was given {len(given)} inputs, expected {len(names)}: {shown}"
            raise UsageError(message, code=WRONG)
        values = dict(zip(names, given, strict=False))
        for name, value in named.items():
            if name not in names:
                raise UsageError(f"{self.name} has no input '{name}': it has {shown}", code=WRONG)
            if name in values:
                raise UsageError(f"input '{name}' was given twice", code=WRONG)
            values[name] = value
        missing = [name for name in names if name not in values]
        if missing:
            raise UsageError(f"input '{missing[0]}' is missing: expected {shown}", code=WRONG)
        return [values[name] for name in names]

    def _given_weights(self, weights: Mapping[str, Any], kept: list[Any]) -> Iterator[CTensor]:
        names = [str(one["name"]) for one in self.manifest["weights"]]
        for name in weights:
            if name not in names:
                raise UsageError(f"{self.name} has no weight '{name}'", code=WRONG)
        for one in self.manifest["weights"]:
            if one["name"] not in weights:
                raise UsageError(f"weight '{one['name']}' is missing", code=WRONG)
            value = weights[one["name"]]
            record, keep = given_tensor(value, one["name"], dtype(one["dtype"]), False)
            kept.append(keep)
            yield record

    def _function(self, name: str, result: Any, *args: Any) -> Any:
        found = self._library[f"treadle_{self.name}_{name}"]
        found.restype, found.argtypes = result, list(args)
        return found

    def _error(self) -> str:
        return str(self._function("error", ctypes.c_char_p)().decode("utf-8", "replace"))

    def _failure(self) -> TreadleError:
        text = self._error()
        code, colon, rest = text.partition(": ")
        if colon and code[:3] == "RUN":
            return PackageRunError(rest, code=code)
        return UsageError(text, code=WRONG) if text.startswith("input ") else PackageRunError(text)


def _opened(file: str, name: str, package_id: str) -> Any:
    """The library in a file, and not another one that this process loaded from there before.

    The loader knows libraries by their path: where a package was replaced it gives the old one.
    """
    found = ctypes.CDLL(file)
    if _id_of(found, name) == package_id:
        return found
    folder = tempfile.mkdtemp(prefix="treadle-library-")
    try:
        found = ctypes.CDLL(shutil.copy(file, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if _id_of(found, name) != package_id:
        raise OSError("it is not the library that the manifest speaks of")
    return found


def _id_of(library: Any, name: str) -> str | None:
    try:
        ask = library[f"treadle_{name}_id"]
    except AttributeError:
        return None
    ask.restype = ctypes.c_char_p
    return str(ask().decode("ascii", "replace"))


def _end(free: Any, handle: int, temporary: str | None) -> None:
    free(handle)
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)


def _library_of_torch() -> str:
    """The library of the torch that is installed, without importing torch; else by its name."""
    torch = sys.modules.get("torch")
    file = getattr(torch, "__file__", None)
    if file is None:
        spec = find_spec("torch")
        file = None if spec is None else spec.origin
    found = os.path.join(os.path.dirname(file), "lib", "libtorch_cpu.so") if file else ""
    return found if os.path.exists(found) else "libtorch_cpu.so"


def _arranged(how: Mapping[str, Any], made: Sequence[Any]) -> Any:
    """The results as the model gave them: lists, tuples, dicts, constants."""
    kind, inside = next(iter(how.items()))
    if kind == "output":
        return made[inside]
    if kind == "value":
        return inside
    if kind == "dict":
        return {key: _arranged(one, made) for key, one in inside}
    items = [_arranged(one, made) for one in inside]
    return tuple(items) if kind == "tuple" else items
