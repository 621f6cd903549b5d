"""`treadle cache [show|clear]`: the compiled code that is kept between runs."""

from __future__ import annotations

import argparse
import os
import time

from treadle.core.code_cache import CodeCache, Entry
from treadle.core.options import Options
from treadle.core.toolchain import code_cache, find_compiler
from treadle.lab.output import emit, human_bytes, table

SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `cache`."""
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        choices=("show", "clear"),
        default="show",
        help="show: what is kept and where (default); clear: throw all compiled code away",
    )


def run(args: argparse.Namespace) -> int:
    """Show or clear the cache of compiled code; exit 1 if what is there may not be used."""
    options = Options.from_env()
    cache = code_cache(options)
    if args.action == "clear":
        return _clear(cache, args.json)
    entries, problem = cache.entries(), cache.problem()
    # Verified one by one, as before loading: what is damaged is replaced when it is next needed.
    sound = [entry for entry in entries if cache.is_whole(entry.key)]
    data: dict[str, object] = {
        "ok": problem is None,
        "errors": [problem] if problem else [],
        "folder": cache.folder,
        "limit": cache.limit,
        "bytes": sum(entry.bytes for entry in entries),
        "compiler": list(find_compiler(options)),
        "refused": len(entries) - len(sound),
        "entries": [{"key": e.key, "bytes": e.bytes, "used": int(e.used)} for e in entries],
    }
    lines = _lines(cache, options, entries, len(sound))
    emit(args.json, data, [*lines, problem] if problem else lines)
    return 0 if problem is None else 1


def _lines(cache: CodeCache, options: Options, entries: list[Entry], sound: int) -> list[str]:
    total = sum(entry.bytes for entry in entries)
    exists = "" if os.path.isdir(cache.folder) else " (not there yet)"
    lines = [
        f"folder    {cache.folder}{exists}",
        f"compiler  {' '.join(find_compiler(options)) or 'none was found'}",
        f"kept      {_libraries(len(entries))}, {human_bytes(total)} of {human_bytes(cache.limit)}",
    ]
    if len(entries) > sound:
        refused = len(entries) - sound
        lines.append(f"refused   {refused} damaged or not private: made again when needed")
    rows = [(e.key[:12], e.bytes, _when(e.used)) for e in entries[:SHOWN]]
    lines += table(rows, ("key", "bytes", "last used")) if rows else []
    if len(entries) > SHOWN:
        lines.append(f"  ... and {len(entries) - SHOWN} more")
    return lines


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _clear(cache: CodeCache, as_json: bool) -> int:
    gone = cache.clear()
    total = sum(entry.bytes for entry in gone)
    data: dict[str, object] = {"folder": cache.folder, "removed": len(gone), "bytes": total}
    emit(as_json, data, [f"removed {_libraries(len(gone))}, {human_bytes(total)}: {cache.folder}"])
    return 0


def _libraries(count: int) -> str:
    return "1 library" if count == 1 else f"{count} libraries"
