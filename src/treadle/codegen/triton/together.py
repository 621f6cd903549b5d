"""Nests that do the same to different memory, as one launch: an optimizer's step over parameters.

    which = tl.program_id(0) // 128           programs of each nest
    if which < 1:                             its addresses, found in a few steps
        a0 = b0_0
    else:
        a0 = b1_0
    first = tl.program_id(0) % 128 * 8
    for pid in tl.range(first, tl.minimum(first + 8, 1024)):
        ...                                   what one program of a nest does

A device starts and ends many small launches one after the other; of one launch all programs are
there at once. Finding addresses takes as long as a tile does, so each program takes several tiles:
neighbours, for memory is fastest where all programs of a moment are in the same part of it.

Nests that keep the device busy by themselves share a launch in eights, one tile for each program:
addresses are found in three steps, and the device does not run empty between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from treadle.codegen.triton.writer import INDENT, TritonSource
from treadle.index import as_expr
from treadle.kernel.choose_gpu import BUSY_PROGRAMS

MOST_ADDRESSES = 256
"""So many are handed to one launch: the parameters of a kernel have a limit."""
PROGRAM = "tl.program_id(0)"
TILES = 8
"""Tiles that one program takes."""
MOST_BUSY = 8
"""Nests that share a launch though each has programs enough for one."""


def together(sources: Sequence[TritonSource]) -> list[TritonSource]:
    """The functions of nests that know no order, those that are alike as one."""
    groups: dict[object, list[TritonSource]] = {}
    for one in sources:
        groups.setdefault(_kind(one), []).append(one)
    found: list[TritonSource] = []
    for alike in groups.values():
        most = MOST_ADDRESSES // max(len(alike[0].storages), 1)
        programs = _programs(alike[0])
        if most < 2 or programs is None:
            found += alike
            continue
        tiles = TILES
        if programs >= BUSY_PROGRAMS:
            most, tiles = min(most, MOST_BUSY), 1
        for k in range(0, len(alike), most):
            some = alike[k : k + most]
            found.append(some[0] if len(some) == 1 else _one(some, tiles))
    return found


def without_name(one: TritonSource) -> str:
    """What a function does, whatever it is called and wherever it comes from."""
    lines = one.text.splitlines()
    return "\n".join([line for line in lines if not line.startswith(("def ", "    # "))])


def _kind(one: TritonSource) -> object:
    return without_name(one), len(one.storages), one.grid, one.warps, one.pipeline


def _programs(one: TritonSource) -> int | None:
    """How many programs a nest takes; None if sizes decide that."""
    count = 1
    for extent, block in one.grid:
        if extent.value is None:
            return None
        count *= -(-extent.value // block)
    return count


def _one(some: Sequence[TritonSource], tiles: int) -> TritonSource:
    first, count = some[0], len(some[0].storages)
    programs = _programs(first)
    assert programs is not None, "nests of unknown size stay apart"
    name = f"{first.name}_and_{len(some) - 1}_more"
    given = [f"b{k}_{j}" for k in range(len(some)) for j in range(count)]
    given += [f"n_{s.name}" for s in first.sizes]
    each = max(-(-programs // tiles), 1)
    lines = first.text.splitlines()
    # The function's first lines say its name and where it comes from.
    comments = [line for line in lines if line.startswith("    # ")]
    body = [line for line in lines[2:] if line not in comments]
    text = [
        "@triton.jit",
        f"def {name}({', '.join(given)}):",
        *comments,
        f"{INDENT}which = {PROGRAM} // {each}",
        *[INDENT + line for line in _chosen(0, len(some), count)],
        *_in_turn(body, programs, each, tiles),
        "",
    ]
    storages = tuple([s for one in some for s in one.storages])
    offsets = tuple([n for one in some for n in one.offsets])
    grid = ((as_expr(each * len(some)), 1),)
    return replace(
        first, name=name, text="\n".join(text), storages=storages, grid=grid, offsets=offsets
    )


def _in_turn(body: Sequence[str], programs: int, each: int, tiles: int) -> Iterator[str]:
    """What a program does, for each of the tiles that fall to it."""
    if tiles == 1:
        yield from [line.replace(PROGRAM, f"({PROGRAM} % {each})") for line in body]
        return
    begin = next((k for k, line in enumerate(body) if PROGRAM in line), None)
    if begin is None:  # a single tile, which asks for no number
        yield from body
        return
    yield from body[:begin]
    yield f"{INDENT}first = {PROGRAM} % {each} * {tiles}"
    yield f"{INDENT}for tile in tl.range(first, tl.minimum(first + {tiles}, {programs})):"
    for line in body[begin:]:
        yield INDENT + line.replace(PROGRAM, "tile") if line else line


def _chosen(low: int, high: int, count: int) -> Iterator[str]:
    """The lines that give a program the addresses of its own nest."""
    if high - low == 1:
        for j in range(count):
            yield f"a{j} = b{low}_{j}"
        return
    middle = (low + high) // 2
    yield f"if which < {middle}:"
    yield from [INDENT + line for line in _chosen(low, middle, count)]
    yield "else:"
    yield from [INDENT + line for line in _chosen(middle, high, count)]
