"""Memory of large results that a host in C uses again in its next run.

The C is `codegen/host_c/blocks.c`, one for the process. It reads how many hold a storage where
torch counts them, inside of torch's own objects; so before it is used at all, `_counts` tries on
real tensors that the numbers there are what they are taken for. Where they are not, or something
else is missing, memory is torch's to hand out, as ever.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib.resources import files
from typing import Any

import torch

from treadle.core.options import Options
from treadle.core.toolchain import load_shared
from treadle.runtime.hosts.torch_c_library import address_of, handle_of, tensors_from

EMPTY = "aoti_torch_empty_strided"
FUNCTIONS = (
    EMPTY,
    "aoti_torch_delete_tensor_object",
    "aoti_torch__reinterpret_tensor",
    "aoti_torch_get_data_ptr",
    "aoti_torch_get_storage_size",
    "_ZN3c1013InferenceMode10is_enabledEv",
)
"""What it needs of the library, in the order of its table."""
LEAST_ELEMENTS = 1 << 14
"""What is smaller costs the system little: glibc keeps it."""
STORAGE_AT, COUNT_AT = 16, 8
"""Where a tensor's object keeps the address of its storage, and any object who holds it."""
FLAGS = ("-std=c11", "-O2", "-w", f"-DLEAST_ELEMENTS={LEAST_ELEMENTS}")


def empty_again(options: Options) -> int | None:
    """The address of what hands out memory again; None where torch's own is to be used."""
    if not options.reuse:
        return None
    library = _library(options)
    if library is None:
        return None
    limit = _limit(library)
    # Graphs of one process share what is held, so the largest wish counts.
    limit(max(options.reuse, limit(options.reuse)))
    found: int | None = ctypes.cast(library["treadle_blocks_empty"], ctypes.c_void_p).value
    return found


def held_bytes() -> int:
    """How many bytes are held at the moment, in use or not."""
    total = 0
    for library in _loaded().values():
        held = library["treadle_blocks_held"]
        held.restype = ctypes.c_int64
        total += int(held())
    return total


def let_go() -> None:
    """Give everything back that is held; what is in use stays with those who use it."""
    for library in _loaded().values():
        limit = _limit(library)
        limit(limit(0))


@lru_cache(maxsize=1)
def _loaded() -> dict[str, Any]:
    """What is loaded, by its file: one, unless compilers or folders for what they make differ."""
    return {}


def _limit(library: Any) -> Any:
    limit = library["treadle_blocks_limit"]
    limit.argtypes, limit.restype = [ctypes.c_int64], ctypes.c_int64
    return limit


@lru_cache(maxsize=4)
def _library(options: Options) -> Any:
    """The C, compiled and linked; None if this torch is not as it expects."""
    addresses = [address_of(name) for name in FUNCTIONS]
    alone = None if None in addresses else _counts()
    if alone is None:
        return None
    source = files("treadle.codegen.host_c").joinpath("blocks.c").read_text("utf-8")
    loaded = load_shared(source, flags=FLAGS, options=options)
    if not loaded.verdict:
        return None
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    link = loaded.library["treadle_blocks_link"]
    link.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 3]
    link.restype = None
    link(ctypes.addressof(table), STORAGE_AT, COUNT_AT, alone)
    found: Any = _loaded().setdefault(loaded.library._name, loaded.library)
    return found


@lru_cache(maxsize=1)
def _counts() -> int | None:
    """What torch writes where a storage has one holder, if it is written where we read it."""
    own: Any = torch._C
    handle = handle_of(torch.empty(4))  # which holds it from now on
    storage = _word(_word(handle) + STORAGE_AT)
    (one,) = tensors_from([handle])
    counts = [_word(storage + COUNT_AT)]
    two = one.view(2, 2)
    counts.append(_word(storage + COUNT_AT))
    is_counted = own._storage_Use_Count(storage) == len(counts)
    del two
    is_back = _word(storage + COUNT_AT) == counts[0]
    shown = one.untyped_storage()
    counts.append(_word(storage + COUNT_AT))
    weak = shown._weak_ref()
    counts.append(_word(storage + COUNT_AT))
    shown._free_weak_ref(weak)
    is_it = shown._cdata == storage and is_counted and is_back
    return counts[0] if is_it and counts[0] not in counts[1:] else None


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value
