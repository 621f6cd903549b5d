"""`treadle cache [show|clear|export|import]`: what is kept between runs.

Compiled code, what became of graphs, and which schedules of GPU kernels were measured to be
fastest; those can be handed on as a file.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict

from treadle.core.code_cache import CodeCache, Entry
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.core.toolchain import code_cache, find_compiler
from treadle.core.writing import Outputs
from treadle.lab.output import emit, human_bytes, table
from treadle.runtime.tuning.answers import all_kept, answers_kept, as_file, put, read_answers
from treadle.schedule.kept_schedules import schedules_kept

SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `cache`."""
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        choices=("show", "clear", "export", "import"),
        default="show",
        help="show: what is kept and where (default); clear: throw it all away; export, import:"
        " what was measured about schedules of GPU kernels, to and from FILE",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file of export and import")
    parser.add_argument("--gpu", metavar="NAME", help="export what is about one kind of GPU")
    parser.add_argument("--force", action="store_true", help="export may replace FILE")


def run(args: argparse.Namespace) -> int:
    """Show, clear or hand on what is kept; exit 1 if what is there may not be used."""
    options = Options.from_env()
    if args.action in ("export", "import"):
        if args.file is None:
            raise UsageError(f"name the file: treadle cache {args.action} FILE", code="OPT002")
        return _export(args, options) if args.action == "export" else _import(args, options)
    if args.file is not None or args.gpu is not None:
        raise UsageError(f"treadle cache {args.action} takes no file and no GPU", code="OPT002")
    cache = code_cache(options)
    if args.action == "clear":
        return _clear(cache, options, args.json)
    entries, problem = cache.entries(), cache.problem()
    schedules = schedules_kept(options).entries()
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
        "tuned": [asdict(one) for one in all_kept(options)],
        "schedules": len(schedules),
        "schedule_bytes": sum(entry.bytes for entry in schedules),
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
    schedules = schedules_kept(options).entries()
    if schedules:
        total = sum(entry.bytes for entry in schedules)
        lines.append(f"schedules {_graphs(len(schedules))}, {human_bytes(total)}")
    tuned = all_kept(options)
    if tuned:
        names = ", ".join(sorted({one.gpu for one in tuned}))
        lines.append(f"measured  {_questions(len(tuned))} on {names}")
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


def _clear(cache: CodeCache, options: Options, as_json: bool) -> int:
    tuned, graphs = answers_kept(options), schedules_kept(options)
    gone, answers, schedules = cache.clear(), tuned.clear(), graphs.clear()
    total = sum(entry.bytes for entry in gone)
    data: dict[str, object] = {"folder": cache.folder, "removed": len(gone), "bytes": total}
    data["tuned"], data["schedules"] = len(answers), len(schedules)
    lines = [f"removed {_libraries(len(gone))}, {human_bytes(total)}: {cache.folder}"]
    if schedules:
        lines.append(f"removed schedules of {_graphs(len(schedules))}: {graphs.folder}")
    lines += [f"removed {_questions(len(answers))}: {tuned.folder}"] if answers else []
    emit(as_json, data, lines)
    return 0


def _export(args: argparse.Namespace, options: Options) -> int:
    if os.path.exists(args.file) and not args.force:
        raise UsageError(f"{args.file} is there already", code="TXT003", notes=["say --force"])
    outputs = Outputs({"FILE": args.file}, [])
    answers = [one for one in all_kept(options) if args.gpu in (None, one.gpu)]
    if not answers:
        about = f" about {args.gpu}" if args.gpu else ""
        raise UsageError(f"nothing was measured{about} yet: {answers_kept(options).folder}")
    outputs.write("FILE", as_file(answers))
    data: dict[str, object] = {"file": args.file, "answers": len(answers)}
    emit(args.json, data, [f"wrote {args.file}: {_questions(len(answers))}"])
    return 0


def _import(args: argparse.Namespace, options: Options) -> int:
    answers, cache = read_answers(args.file), answers_kept(options)
    known = {one.place for one in all_kept(options)}
    fresh = [one for one in answers if one.place not in known]
    for one in fresh:
        put(cache, one)
    data: dict[str, object] = {"file": args.file, "answers": len(answers), "new": len(fresh)}
    lines = [f"read {args.file}: {_questions(len(answers))}, {len(fresh)} of them new"]
    emit(args.json, data, lines)
    return 0


def _questions(count: int) -> str:
    return "1 kind of GPU kernel" if count == 1 else f"{count} kinds of GPU kernels"


def _graphs(count: int) -> str:
    return "1 graph" if count == 1 else f"{count} graphs"


def _libraries(count: int) -> str:
    return "1 library" if count == 1 else f"{count} libraries"
