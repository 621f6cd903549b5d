"""What a package says about itself: `manifest.json`, written last and read first.

    format, version       "treadle package", 1: who else calls something so is refused
    name, id, treadle     what it is, the digest of its code, who made it
    platform              system, machine and what the processor must have
    torch                 the version whose C interface it calls; null: it calls none
    sizes, constraints    run-time sizes with their bounds, and what must hold between them
    inputs, outputs       name, dtype, shape (numbers and expressions of sizes), strides
    weights               the same, with offset and bytes in weights.bin
    result                how the results are arranged: lists, tuples, dicts, constants
    files                 bytes and SHA-256 of every other file
    checksum              SHA-256 of all of the above

Anything that is not so is PKG001 (no package, or a damaged one) or PKG002 (one for another
machine or version), in one line, before anything of it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.core.errors import InputError

FORMAT, VERSION = "treadle package", 1
NAME = "manifest.json"
DAMAGED, FOREIGN = "PKG001", "PKG002"
BLOCK = 1 << 20
LONGEST = 64 << 20
"""Bytes of a manifest: one that is longer is none."""
FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "name": str, "id": str, "treadle": str, "platform": dict, "sizes": list, "constraints": list,
    "inputs": list, "outputs": list, "weights": list, "weights_in": str, "result": dict,
    "library": str, "header": str, "files": dict, "memory": dict,
}  # fmt: skip


def machine() -> dict[str, str]:
    """What a library that is compiled here runs on."""
    return {"system": sys.platform, "machine": platform.machine()}


def checksum_of(manifest: Mapping[str, Any]) -> str:
    """The digest of all fields but itself."""
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def as_text(manifest: Mapping[str, Any]) -> str:
    """The manifest with its checksum, for people and programs."""
    return json.dumps({**manifest, "checksum": checksum_of(manifest)}, indent=1) + "\n"


def read_manifest(content: bytes, file: str) -> dict[str, Any]:
    """The manifest, if it is one of ours and for this machine."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise damaged(file, "the manifest of a package", "something that is not JSON") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise damaged(file, f'a manifest whose format is "{FORMAT}"', "another file")
    version = found.get("version")
    if version != VERSION:
        raise foreign(file, f"version {VERSION} of packages", f"version {version}")
    for name, kind in FIELDS.items():
        if not isinstance(found.get(name), kind):
            raise damaged(file, f"the field '{name}'", "none, or another kind of value")
    if found.get("checksum") != checksum_of(found):
        raise damaged(file, "a manifest as it was written", "a changed one: its checksum differs")
    here, there = machine(), found["platform"]
    for name, value in here.items():
        if there.get(name) != value:
            raise foreign(file, f"a package for {value}", f"one for {there.get(name)}")
    return found


def damaged(file: object, expected: str, found: str) -> InputError:
    """The one line about a file that is no package, or a damaged one."""
    return InputError(file=file, expected=expected, found=found, code=DAMAGED)


def foreign(file: object, expected: str, found: str) -> InputError:
    """The one line about a package that was made for something else."""
    return InputError(file=file, expected=expected, found=found, code=FOREIGN)


def digest_of(blocks: Iterable[bytes]) -> str:
    """The SHA-256 of some content."""
    found = hashlib.sha256()
    for block in blocks:
        found.update(block)
    return found.hexdigest()
