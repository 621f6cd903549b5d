"""Every command on damaged files of every kind: one clear message, never a traceback, never a hang.

    PYTHONPATH=src python tests/fuzz/command_fuzzer.py --cases 100000 --seed 0

A case is a file of the corpus, changed a little or a lot, and a command line. Changes know the
structure of the file: numbers and names are replaced everywhere alike, so that the file stays
consistent and gets past the reader; nodes and operations are dropped, doubled, moved; words of one
table are exchanged; JSON values change their type. Each failure is printed with its seed and its
command, and its files are kept in the folder that --keep names.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx, journal_for
from treadle.core.errors import InternalError, TreadleError
from treadle.core.options import Options
from treadle.ir.ops import POINTWISE
from treadle.ir.text import show_program
from treadle.ir.types import DType
from treadle.lab.cli import build_parser, run_command
from treadle.lab.demo_program import demo_program
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.record import schedule_of

SECONDS = 10.0
"""CPU time after which a case counts as a hang."""
LARGEST_SEED = 30_000
"""Characters of a corpus file; larger ones make cases slow and find nothing else."""
TESTS = Path(__file__).parents[1]
BUGS = ("PIPE001", "PIPE002", "CERT001", "CERT002", "CERT003", "CERT004", "CERT005", "CERT006")
"""Codes that say that Treadle itself went wrong."""

Mutation = Callable[[random.Random, str], str]


class HangError(BaseException):
    """A case took too long; not an Exception, so that nothing on the way swallows it."""


@dataclass(frozen=True)
class Failure:
    """One case that went wrong."""

    case: int
    words: tuple[str, ...]
    what: str
    folder: str | None = None


# ------------------------------------------------------------------------------- the corpus


def seeds() -> dict[str, list[str]]:
    """Texts of every kind that can be read."""
    found: dict[str, list[str]] = {"program": _golden_programs()}
    inductor = sorted((TESTS / "corpus" / "inductor").glob("*.txt"))
    xla = sorted((TESTS / "corpus" / "xla").glob("*.txt"))
    found["inductor"] = [t for p in inductor if len(t := p.read_text("utf-8")) < LARGEST_SEED]
    found["xla"] = [t for p in xla if len(t := p.read_text("utf-8")) < LARGEST_SEED]
    found["csv"] = [
        "id,lower,upper,size\na,0,2,4\nb,1,3,6\nc,2,4,4\n",
        "# capacity 64\nid,lower,upper,size,alignment,offset\na,0,2,4,4,0\nb,1,3,6,8,8\n",
        "# pool out size=64 free=0-9 alignment=16\nid,lower,upper,size,gaps,host,group,fixed\n"
        "a,0,5,8,1-2 3-4,out,g,\nb,0,5,8,,,g,\nc,1,9,32,,,,16\n",
    ]
    found |= _made_by_commands()
    return found


def _golden_programs() -> list[str]:
    texts = [show_program(demo_program())]
    for file in sorted((TESTS / "golden").glob("*/*.md")):
        blocks = re.findall(r"```(?:before|after)\n(.*?)```", file.read_text("utf-8"), re.DOTALL)
        texts += [t for t in blocks if t.startswith("treadle ") and len(t) < LARGEST_SEED]
    return texts


def _made_by_commands() -> dict[str, list[str]]:
    """A journal, a schedule and a reproducer of the demo program."""
    program = demo_program()
    options = Options(explain=True)
    ctx = Ctx(options, cost_model(program, options), journal_for(options))
    scheduled = run_pipeline(program, ctx)
    with tempfile.TemporaryDirectory() as folder:
        ctx.journal.write(Path(folder) / "j")
        journal = (Path(folder) / "j").read_text("utf-8")
    header = {"treadle_repro": 1, "passes": ["merge-loops", "fuse", "name-kernels"],
              "options": {"check": 2, "policy": "fast", "seed": 3}, "error": "x"}  # fmt: skip
    return {
        "journal": [journal],
        "schedule": [schedule_of(program, scheduled).to_text()],
        "reproducer": [json.dumps(header) + "\n" + show_program(program)],
    }


# -------------------------------------------------------------------------------- mutations

HOSTILE = "()[]{}',.=: _-*/\\\"\n\r\t\x00\N{FULLWIDTH DIGIT THREE}é0a<>@%|#"
NUMBERS = ("0", "1", "2", "3", "7", "16", "-1", "-7", "63", "1000003", "2147483648",
           "9223372036854775807", "10" * 20, "0.5", "1e400", "nan", "")  # fmt: skip
NAMES = ("x", "y", "buf0", "buf1", "op0", "op1", "buf77", "a" * 300, "x y", "", "None", "i0",
         "é", "s0", "u0", "__class__", "-", "self")  # fmt: skip
DEVICES = ("cpu", "cuda", "cuda:0", "cuda:1", "meta", "warp9", "cpu:0", "cuda:200")
MODES = ("atomic_add", "plain", "None", "tma", "add")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAME = re.compile(r"[^\W\d]\w*")
_TYPE = re.compile(r"\b(?:torch\.\w+|[fiu](?:8|16|32|64)|bf16|bool|pred|s32)\b")
_OPERATION = re.compile(r"(?<=ops\.)\w+|(?<== )[a-z_0-9]+(?= %)")


def replace_number(rng: random.Random, text: str) -> str:
    """One number, in one place or everywhere."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    one, new = rng.choice(found), rng.choice(NUMBERS)
    if rng.random() < 0.5:
        return re.sub(rf"(?<![\w.]){re.escape(one[0])}(?![\w.])", new, text)
    return text[: one.start()] + new + text[one.end() :]


def scale_number(rng: random.Random, text: str) -> str:
    """A size everywhere alike, by a plausible factor: the file stays consistent."""
    found = [m[0] for m in _NUMBER.finditer(text) if m[0].isdigit() and m[0] not in "01"]
    if not found:
        return text
    old = rng.choice(found)[:40]
    new = str(
        max(0, int(old) * rng.choice((0, 1, 2, 3)) // rng.choice((1, 2)) + rng.choice((0, 1)))
    )
    return re.sub(rf"(?<![\w.]){old}(?![\w.])", new, text)


def replace_name(rng: random.Random, text: str) -> str:
    """One name, in one place or everywhere, by another name of the file or a strange one."""
    found = list(_NAME.finditer(text))
    if not found:
        return text
    one = rng.choice(found)
    new = rng.choice(NAMES) if rng.random() < 0.4 else rng.choice(found)[0]
    if rng.random() < 0.4:
        return re.sub(rf"(?<!\w){re.escape(one[0])}(?!\w)", new.replace("\\", ""), text)
    return text[: one.start()] + new + text[one.end() :]


def exchange_word(rng: random.Random, text: str) -> str:
    """An element type, an operation or a device by another one of its table."""
    types = [*[d.text for d in DType], *[f"torch.{d.torch_name}" for d in DType], "torch.complex64",
             "c64", "s8", "token"]  # fmt: skip
    pattern, words = rng.choice(
        ((_TYPE, types), (_OPERATION, [*POINTWISE, "reduce", "scan", "sort", "load", "masked"]),
         (re.compile(r"\bcpu\b|\bcuda:\d\b"), list(DEVICES)),
         (re.compile(r"\b(?:atomic_add|plain)\b"), list(MODES)))
    )  # fmt: skip
    found = list(pattern.finditer(text))
    if not found:
        return text
    one, new = rng.choice(found), rng.choice(words)
    if rng.random() < 0.3:
        return text.replace(one[0], new)
    return text[: one.start()] + new + text[one.end() :]


def change_arguments(rng: random.Random, text: str) -> str:
    """One argument of one call dropped, doubled or put in the place of another."""
    found = [m for m in re.finditer(r"\(([^()\n]+)\)", text) if "," in m[1]]
    if not found:
        return text
    one = rng.choice(found)
    parts = one[1].split(", ")
    at, how = rng.randrange(len(parts)), rng.randrange(3)
    if how == 0:
        del parts[at]
    elif how == 1:
        parts.insert(at, rng.choice(parts))
    else:
        parts[at] = rng.choice(rng.choice(found)[1].split(", "))
    return text[: one.start(1)] + ", ".join(parts) + text[one.end(1) :]


def _blocks(text: str) -> list[str]:
    """Nodes, operations, computations: what blank lines keep apart, with those lines."""
    return re.findall(r".+?(?:\n\n+|\Z)", text, re.DOTALL) or [text]


def drop_block(rng: random.Random, text: str) -> str:
    """One of the blocks is gone."""
    blocks = _blocks(text)
    del blocks[rng.randrange(len(blocks))]
    return "".join(blocks)


def double_block(rng: random.Random, text: str) -> str:
    """One of the blocks stands twice, the second time under new names."""
    blocks = _blocks(text)
    at = rng.randrange(len(blocks))
    copy = re.sub(r"\b(op|buf|loop |%)(\d+)", lambda m: f"{m[1]}{int(m[2][:9]) + 50}", blocks[at])
    blocks.insert(rng.randrange(len(blocks) + 1), copy if rng.random() < 0.7 else blocks[at])
    return "".join(blocks)


def move_block(rng: random.Random, text: str) -> str:
    """One of the blocks stands elsewhere."""
    blocks = _blocks(text)
    block = blocks.pop(rng.randrange(len(blocks)))
    blocks.insert(rng.randrange(len(blocks) + 1), block)
    return "".join(blocks)


def reverse_blocks(rng: random.Random, text: str) -> str:
    """All blocks the other way round."""
    return "".join(_blocks(text)[::-1])


def join(rng: random.Random, text: str) -> str:
    """The text behind itself, or behind a part of itself."""
    return text[: rng.choice((len(text), rng.randrange(1, len(text) + 1)))] + text


def change_line(rng: random.Random, text: str) -> str:
    """A line dropped, doubled, moved or emptied."""
    lines = text.split("\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(4)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(to, lines[at])
    elif how == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        lines[at] = ""
    return "\n".join(lines)


def cut(rng: random.Random, text: str) -> str:
    """Only the beginning, or only the end."""
    at = rng.randrange(len(text) + 1)
    return text[:at] if rng.random() < 0.7 else text[at:]


def replace_characters(rng: random.Random, text: str) -> str:
    """A few characters that mean something somewhere."""
    characters = list(text)
    for _ in range(rng.randrange(1, 5)):
        if characters:
            characters[rng.randrange(len(characters))] = rng.choice(HOSTILE)
    return "".join(characters)


def insert_text(rng: random.Random, text: str) -> str:
    """Something long, deep or foreign in the middle."""
    at = rng.randrange(len(text) + 1)
    piece = rng.choice(
        ["(" * 500, "[" * 3000, "9" * 5000, "\n\n\n", "'", '"', "# capacity -5\n", "{" * 200,
         "Min(p0, p1)", "Where(p0 < 1, p1, 2)", " + 5*i0", "ModularIndexing(p0, 1, 0)", "//0",
         " % 0", "**9999999"]
    )  # fmt: skip
    return text[:at] + piece + text[at:]


def change_json(rng: random.Random, text: str) -> str:
    """One value of a JSON document, or of one of its lines, becomes another one."""
    lines = text.split("\n")
    whole = text.startswith("{\n")
    at = 0 if rng.random() < 0.5 else rng.randrange(len(lines))
    try:
        data = json.loads(text if whole else lines[at])
    except (ValueError, RecursionError):
        return replace_number(rng, text)
    data = _changed(rng, data)
    if whole:
        return json.dumps(data, indent=1)
    lines[at] = json.dumps(data)
    return "\n".join(lines)


def _changed(rng: random.Random, data: object, depth: int = 0) -> object:
    if isinstance(data, dict) and data and rng.random() < 0.85:
        key = rng.choice(list(data))
        if rng.random() < 0.15:
            return {k: v for k, v in data.items() if k != key}
        return {**data, key: _changed(rng, data[key], depth + 1)}
    if isinstance(data, list) and data and rng.random() < 0.85:
        at = rng.randrange(len(data))
        if rng.random() < 0.2:
            return [*data, data[at]] if rng.random() < 0.5 else data[:at] + data[at + 1 :]
        return [*data[:at], _changed(rng, data[at], depth + 1), *data[at + 1 :]]
    return rng.choice(
        [None, True, 0, -1, 1.5, 10**30, "", "x", [], {}, [[]], {"kind": "Fused", "members": []},
         "treadle 1\nprogram p\n", float("nan")]
    )  # fmt: skip


ANY: tuple[Mutation, ...] = (
    replace_number, replace_number, scale_number, scale_number, replace_name, replace_name,
    exchange_word, exchange_word, change_arguments, change_arguments, drop_block, double_block,
    move_block, reverse_blocks, join, change_line, cut, replace_characters, insert_text,
)  # fmt: skip
JSON_KINDS = ("journal", "schedule", "reproducer")


GENTLE: tuple[Mutation, ...] = (
    scale_number, scale_number, replace_name, exchange_word, change_arguments, drop_block,
    double_block, move_block, change_line,
)  # fmt: skip
"""Changes after which a file often still reads."""


def csv_from_nothing(rng: random.Random) -> str:
    """A problem of random blocks, most of them sound, some with a plan."""
    more = ["alignment", "gaps", "fixed", "host", "group", "pool", "offset"]
    columns = ["id", "lower", "upper", "size", *rng.sample(more, rng.randrange(4))]
    rows = [",".join(columns)]
    for k in range(rng.randrange(12)):
        start = rng.randrange(-2, 12)
        values = {
            "id": f"b{k}" if rng.random() < 0.97 else "b0",
            "lower": start, "upper": start + rng.randrange(0 if rng.random() < 0.1 else 1, 9),
            "size": rng.choice((0, 1, 4, 64, 100, 2**40)), "alignment": rng.choice((1, 4, 64, "")),
            "gaps": rng.choice(("", "1-2", "3-4 5-6", "9-1")), "fixed": rng.choice(("", "", 0, 64)),
            "host": rng.choice(("", "out")), "group": rng.choice(("", "g")),
            "pool": rng.choice(("", "out")), "offset": rng.choice((0, 4, 64, 128, -4)),
        }  # fmt: skip
        rows.append(",".join(str(values[c]) for c in columns))
    head = rng.choice(("", "# capacity 100\n", "# pool out size=64 free=0-9\n"))
    return head + "\n".join(rows) + "\n"


# --------------------------------------------------------------------------------- commands

OPTIONS: Mapping[str, Sequence[Sequence[str]]] = {
    "check": (),
    "show": (),
    "schedule": (("--policy", "balanced"), ("--policy", "memory"), ("--policy", "inductor"),
                 ("--policy", "?"), ("--accounting", "ours"), ("--accounting", "inductor"),
                 ("-o", "OUT"), ("--save", "OUT2"), ("--journal", "OUT3"), ("--replay", "OTHER"),
                 ("-o", "FILE"), ("-o", "."), ("--force",)),
    "plan": (("--seconds", "1"), ("--seconds", "nan"), ("--seconds", "0"), ("--steps", "100"),
             ("--steps", "-1"), ("--effort", "exact"), ("--effort", "fast"), ("--capacity", "0"),
             ("--capacity", "100"), ("--capacity", "-1"), ("--seed", "3"), ("-o", "OUT"),
             ("--svg", "OUT2"), ("-o", "/nowhere/x"), ("--map",), ("--order",),
             ("--accounting", "inductor"), ("--outputs", "own"), ("--outputs", "hosts"),
             ("--alignment", "0"), ("--alignment", "64"), ("--alignment", "3"), ("--force",)),
    "export": (("-o", "OUT"), ("--dialect", "2.5"), ("--dialect", "2.6"), ("--dialect", "9"),
               ("--title", "BEFORE FUSION"), ("-o", "FILE")),
    "why": (("--policy", "fast"),),
    "diff": (("--accounting", "ours"),),
    "replay": (("--pass", "os:getcwd"), ("--pass", "nothing"), ("--pass", "no.such:thing")),
    "explain": (),
    "env": (),
}  # fmt: skip
WEIGHTS = {"check": 5, "show": 5, "schedule": 6, "plan": 6, "export": 4, "why": 2, "diff": 2,
           "replay": 1, "explain": 0.1, "env": 0.1}  # fmt: skip

LIKELY: Mapping[str, Sequence[str]] = {
    "csv": ("check", "show", "plan"),
    "nothing": ("check", "show", "plan"),
    "journal": ("check", "show", "diff"),
    "schedule": ("check", "show", "diff"),
    "reproducer": ("replay", "replay", "check", "show", "schedule", "plan", "export"),
}
"""Commands that can do something with a file of this kind."""


def command_line(rng: random.Random, folder: Path, text: str, kind: str) -> list[str]:
    """A command on the files in the folder, with a few options, sensible or not."""
    command = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if kind in LIKELY and rng.random() < 0.8:
        command = rng.choice(LIKELY[kind])
    file, other = str(folder / "file.txt"), str(folder / "other.txt")
    places = {"FILE": file, "OTHER": other, "OUT": str(folder / "out"), ".": str(folder),
              "OUT2": str(folder / "out2"), "OUT3": str(folder / "out3")}  # fmt: skip
    words = [command]
    if command == "explain":
        words += [rng.choice(("IR001", "IND025", "XXX", "", "../IR001"))]
    elif command != "env":
        words.append(file)
    if command == "check" and rng.random() < 0.2:
        words.append(other)
    if command == "why":
        names = _NAME.findall(text)[:2000] or ["x"]
        leaders = re.findall(r"^(?:loop |extern |fused )?(\w+)(?:: \w+\(| on )", text, re.MULTILINE)
        words += [rng.choice(leaders or names), rng.choice(leaders or names)]
    if command == "diff":
        words.append(rng.choice((file, other)))
    for option in rng.sample(list(OPTIONS[command]), min(len(OPTIONS[command]), rng.randrange(3))):
        words += [places.get(word, word) for word in option]
    if rng.random() < 0.3:
        words.append("--json")
    return words


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise HangError in the block once it has used that much CPU time."""

    def stop(*_: object) -> None:
        raise HangError

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def run(words: Sequence[str], seconds: float = SECONDS) -> tuple[int | str, str | None]:
    """The exit code (or a word for it), and what went wrong inside, if anything."""
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            with time_limit(seconds):
                code: int | str = _run(words)
        except HangError:
            stack = traceback.format_exc(limit=-6)
            return "hang", f"over {seconds} s of CPU time\n{stack}"
        except SystemExit as e:
            code = "usage" if e.code == 2 else str(e.code)
        except TreadleError as e:
            if isinstance(e, InternalError) or e.code in BUGS:
                return "bug", e.render()
            code = e.exit_code
            rendered = e.render()
            if type(e).__name__ == "InputError" and "\n" in rendered:
                return "bug", f"more than one line: {rendered}"
        except OSError:
            code = 2
        except Exception:
            return "traceback", traceback.format_exc(limit=-8)
    used = time.process_time() - start
    return code, f"{used:.1f} s of CPU time" if used > seconds else None


def _run(words: Sequence[str]) -> int:
    return run_command(build_parser(only=words[0]).parse_args(list(words)))


# ------------------------------------------------------------------------------------ cases


def make_case(seed: int, case: int, corpus: Mapping[str, list[str]], folder: Path) -> list[str]:
    """Write the files of a case; gives its command line."""
    rng = random.Random(f"{seed} {case}")
    texts, kinds = [], []
    for name in ("file.txt", "other.txt"):
        kind = rng.choice([*corpus, "inductor", "inductor", "program", "program", "xla", "nothing"])
        if name == "other.txt" and rng.random() < 0.5:
            kind = "schedule"
        text = csv_from_nothing(rng) if kind == "nothing" else rng.choice(corpus[kind])
        mutations = GENTLE if rng.random() < 0.6 else ANY
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3))):
            if kind in JSON_KINDS and rng.random() < 0.7:
                text = change_json(rng, text)
            else:
                text = rng.choice(mutations)(rng, text) or "x"
        kinds.append(kind)
        texts.append(text)
        (folder / name).write_text(text, "utf-8", "surrogatepass", newline="")
    return command_line(rng, folder, texts[0], kinds[0])


def fuzz(
    first: int, count: int, seed: int, keep: Path | None = None, progress: bool = False
) -> tuple[list[Failure], Counter[str]]:
    """Run cases `first` to `first + count`; gives the failures and how the others ended."""
    corpus = seeds()
    failures: list[Failure] = []
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "case"
        for case in range(first, first + count):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            words = make_case(seed, case, corpus, folder)
            end, wrong = run(words)
            ends[f"{words[0]} {end}"] += 1
            if wrong is not None:
                kept = _keep(folder, keep, seed, case)
                failures.append(Failure(case, tuple(words), wrong, kept))
                if progress:
                    print(f"case {case}: {' '.join(words)}\n{wrong}\n", flush=True)
            if progress and (case - first + 1) % 1000 == 0:
                print(f"{case - first + 1} cases, {len(failures)} failures", flush=True)
    return failures, ends


def _keep(folder: Path, keep: Path | None, seed: int, case: int) -> str | None:
    if keep is None:
        return None
    target = keep / f"{seed}-{case}"
    shutil.copytree(folder, target, dirs_exist_ok=True)
    return str(target)


def main() -> int:
    """Run from the command line; exit 1 if a case failed."""
    parser = argparse.ArgumentParser(description="random files for every command")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--keep", type=Path, help="folder that receives the files of failures")
    args = parser.parse_args()
    start = time.perf_counter()
    failures, ends = fuzz(args.first, args.cases, args.seed, args.keep, progress=True)
    for end, count in sorted(ends.items()):
        print(f"{end:<24} {count}")
    seconds = time.perf_counter() - start
    print(f"{args.cases} cases, seed {args.seed}: {len(failures)} failures, {seconds:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
