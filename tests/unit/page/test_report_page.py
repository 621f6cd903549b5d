"""A report shows what the commands print, in one file that needs nothing else."""

from __future__ import annotations

import html
import shutil
import subprocess
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from browser import Chromium, chromium_path
from page_tools import SEEDS, command, data_of, in_browser, seed, walked

from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program
from treadle.page.html import SCRIPTS, page
from treadle.page.kernels import LOOSER
from treadle.page.overview import apart
from treadle.page.report import head

MANY = 10_000
FIVE_MEGABYTES = 5 << 20
VIEWS = (
    "#overview",
    "#kernels",
    "#roofline",
    "#graph",
    "#graph?all=1",
    "#fusion",
    "#memory",
    "#passes",
    "#lanes",
    "#codes",
)


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    path = tmp_path / "program.txt"
    path.write_text(show_program(demo_program()))
    return path


def report(source: Path, out: Path, *more: str) -> dict:
    if more == ("--only",) and source.parent == SEEDS:
        out.write_bytes(page_of_seed(source))
    else:
        assert main(["report", str(source), "-o", str(out), *more]) == 0
    return data_of(out)


@cache
def page_of_seed(source: Path) -> bytes:
    """The page of a file that nobody changes: made once, looked at by many."""
    with TemporaryDirectory() as folder:
        out = Path(folder, "out.html")
        assert main(["report", str(source), "-o", str(out), "--only"]) == 0
        return out.read_bytes()


@pytest.mark.parametrize("number", ["demo", "000", "001", "002", "003"])
def test_every_figure_is_the_one_that_the_commands_print(
    number: str, demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = demo if number == "demo" else seed(number)
    shown = report(source, tmp_path / "out.html", "--only")
    scheduled = tmp_path / "scheduled.txt"
    said = command(capsys, "schedule", source, "-o", scheduled)
    for column, word in enumerate(shown["figures"]["columns"]):
        for row in shown["figures"]["rows"]:
            if row["key"] != "predicted_us":
                assert row["values"][column] == said[word][row["key"]], (word, row["key"])
    peaks = next(r["values"] for r in shown["figures"]["rows"] if r["key"] == "peak_bytes")
    assert [one["peak_bytes"] for one in shown["live"]] == [peaks[0], peaks[-1]]
    for key in ("refusals", "traded", "kept_given", "policy", "accounting"):
        assert shown[key] == said[key]
    assert [(p["name"], p["changed"]) for p in shown["passes"]] == [
        (p["name"], p["changed"]) for p in said["passes"]
    ]
    kernels = command(capsys, "kernels", source)
    assert len(shown["kernels"]) == len(kernels["kernels"])
    for mine, theirs in zip(shown["kernels"], kernels["kernels"], strict=True):
        assert {key: mine[key] for key in theirs} == theirs
    steps = {nest: s for row in shown["kernels"] for nest, s in row["steps"].items()}
    if any(row.get("code_note") == LOOSER for row in shown["kernels"]):
        # Shown as written for a GPU, which exact sums cannot be; all figures are of exact ones.
        assert kernels["schedules"] == {}
        assert {row["language"] for row in shown["kernels"] if row.get("code")} == {"Triton"}
        assert all(nest_steps for nest_steps in steps.values())
    else:
        assert steps == kernels["schedules"]
    times = [row for row in shown["figures"]["rows"] if row["key"] == "predicted_us"]
    assert times[0]["values"][-1] == kernels["totals"]["predicted_us"]
    given, ours = shown["memory"][:2]
    if number != "002":  # `plan` speaks of XLA's own buffers there, see below
        before = command(capsys, "plan", source)["before"]
        keys = ("total_bytes", "plan_lower_bound", "peak_bytes", "peak_at", "unshared_bytes")
        assert {k: given[k] for k in keys} == {k: before[k] for k in keys}
    after = command(capsys, "plan", scheduled)
    assert {k: ours[k] for k in keys_of(after["after"])} == keys_of(after["after"])
    for mine, theirs in zip(ours["breakdown"], after["breakdown"], strict=True):
        assert {key: mine[key] for key in theirs} == theirs


def keys_of(figures: dict) -> dict:
    keys = ("total_bytes", "plan_lower_bound", "peak_bytes", "peak_at", "unshared_bytes")
    return {k: figures[k] for k in keys}


@pytest.mark.parametrize("number", ["000", "001", "003"])
def test_the_memory_map_adds_up(number: str, tmp_path: Path) -> None:
    for one in report(seed(number), tmp_path / "out.html", "--only")["memory"]:
        assert max(one["curve"]) == one["peak_bytes"]
        assert sum(row["bytes"] for row in one["breakdown"]) == one["peak_bytes"]
        assert one["arena_lower_bound"] <= one["arena_bytes"]
        ends = [b["offset"] + b["size"] for b in one["blocks"] if b["pool"] == "arena"]
        assert max(ends, default=0) == one["arena_bytes"]
        for row in one["breakdown"]:
            if "peak_without" in row:
                assert one["peak_bytes"] - row["bytes"] <= row["peak_without"] <= one["peak_bytes"]


def test_a_page_of_xlas_files_shows_xlas_plan_and_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = seed("002")
    shown = report(source, tmp_path / "out.html", "--only")
    plans = {m["label"]: m for m in shown["memory"]}
    said = command(capsys, "plan", source)
    assert plans["XLA's plan"]["arena_bytes"] == said["before"]["temp_bytes"] == 985_504
    assert plans["planned again"]["arena_bytes"] == said["after"]["temp_bytes"] == 0
    assert f"{said['before']['temp_bytes']:,} B" in shown["notes"][0]


def test_every_decision_of_the_journal_is_in_the_page(tmp_path: Path) -> None:
    from treadle.core.journal import Journal

    source, journal = seed("001"), tmp_path / "j.jsonl"
    assert main(["schedule", str(source), "--journal", str(journal)]) == 0
    told = [
        (e["question"], e["ops"], e["code"], e["facts"])
        for e in Journal.read(journal).events("verdict")
    ]
    shown = report(source, tmp_path / "out.html", "--only")
    assert [(v["question"], v["ops"], v["code"], v["facts"]) for v in shown["verdicts"]] == told
    assert {v["code"] for v in shown["verdicts"]} - {"OK"} <= set(shown["codes"])
    assert {v["pass"] for v in shown["verdicts"]} <= {p["name"] for p in shown["passes"]}
    of_journal = report(journal, tmp_path / "journal.html")
    assert of_journal["verdicts"] == shown["verdicts"]


@pytest.mark.parametrize("number", ["demo", "000", "003"])
def test_a_journal_alone_gives_the_whole_page(number: str, demo: Path, tmp_path: Path) -> None:
    source = tmp_path / "copy.txt"
    source.write_text((demo if number == "demo" else seed(number)).read_text())
    journal = tmp_path / "j.jsonl"
    more = ("--policy", "memory") if number == "demo" else ()
    assert main(["schedule", str(source), "--journal", str(journal), *more]) == 0
    of_file = report(source, tmp_path / "file.html", "--only", *more)
    source.unlink()
    out, trace = tmp_path / "journal.html", tmp_path / "trace.json"
    of_journal = report(journal, out, "--trace", str(trace))
    assert trace.exists()
    left = {"title", "file_kind", "passes", "taken"}
    assert {k: v for k, v in of_file.items() if k not in left} == {
        k: v for k, v in of_journal.items() if k not in left
    }
    told = ("number", "name", "about", "changed", "changes", "figures")
    ours, theirs = (
        [{key: row.get(key) for key in told} for row in page["passes"]]
        for page in (of_journal, of_file)
    )
    assert ours == theirs
    assert any(row["changes"] for row in ours) or number != "demo"
    seen = walked(out, *VIEWS)
    assert all(seen[view].strip() for view in VIEWS)


def test_a_journal_without_programs_shows_decisions_and_a_damaged_one_is_refused(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from treadle.core.journal import Journal

    journal, out = tmp_path / "j.jsonl", tmp_path / "journal.html"
    assert main(["schedule", str(demo), "--journal", str(journal)]) == 0
    whole = Journal.read(journal)
    bare = Journal()
    for event in whole.events():
        if event["kind"] != "note":
            bare.emit(event["kind"], **{k: v for k, v in event.items() if k not in ("kind", "n")})
    bare.write(journal)
    assert "kernels" not in report(journal, out)
    assert walked(out, "#fusion", "#passes")["links"] == ["#fusion", "#passes", "#codes"]
    damaged = Journal()
    for role in ("given", "unfused", "scheduled", "built"):
        said = {"options": {}, "kept_given": False, "program": "treadle 1\nprogram"}
        damaged.emit("note", text="a program", role=role, **said)
    damaged.write(journal)
    assert main(["report", str(journal), "-o", str(out)]) == 2
    assert "expected notes with whole programs" in capsys.readouterr().err


def test_what_a_pass_changed_leads_from_the_given_program_to_the_last(tmp_path: Path) -> None:
    shown = report(seed("001"), tmp_path / "out.html", "--only")
    said = {row["name"]: row["changes"] for row in shown["passes"] if row["changed"]}
    dropped = said["merge-duplicates"]["dropped"]
    assert len(dropped) == 50  # the headline of the seed: bodies that equal a sibling's
    assert len(said["fuse"]["fused"]) > 0
    last = [row["figures"] for row in shown["passes"] if row["changed"]][-1]
    rows = {row["key"]: row["values"][-1] for row in shown["figures"]["rows"]}
    assert last == {key: rows[key] for key in ("kernels", "bytes_moved", "peak_bytes")}


def test_the_page_of_seed_001_is_small_and_draws_every_view(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    shown = report(seed("001"), out, "--only")
    assert out.stat().st_size < FIVE_MEGABYTES
    seen = walked(out, *VIEWS, "#kernel?name=op946", "#fusion?code=FUS010", "?buf921", "?op1103")
    refused = [v for v in shown["verdicts"] if v["code"] == "FUS010"]
    left = [v for v in apart(refused, shown["kernels"]) if v["facts"]["bytes"]]
    assert f"{len(left)} fusions refused by FUS010" in seen["#overview"]
    peak = next(r["values"][-1] for r in shown["figures"]["rows"] if r["key"] == "peak_bytes")
    assert f"{peak:,}" in seen["#overview"]
    assert "%0 = load" in seen["#kernel?name=op946"]
    assert "tl.load(p" in seen["#kernel?name=op946"]
    assert len(seen["#kernel?name=op946 lit"]) > 1  # one value, on both sides
    assert seen["?buf921 leads to"] == "#memory?block=buf921"
    assert seen["?op1103 leads to"] == "#kernel?name=op1103"
    assert f"{len(refused)} of {len(shown['verdicts']):,}" in seen["#fusion?code=FUS010"]


def test_a_value_lights_up_in_the_loops_and_in_the_code(tmp_path: Path, demo: Path) -> None:
    shown = report(demo, tmp_path / "out.html")
    name = shown["kernels"][0]["name"]
    seen = walked(tmp_path / "out.html", f"#kernel?name={name}")
    lit = set(seen[f"#kernel?name={name} lit"])
    assert {"%0", "%1", "x"} <= lit
    assert any(word.startswith("v") for word in lit)
    assert shown["kernels"][0]["language"] == "C"


def many() -> Program:
    """A program of ten thousand operations: chains that fuse, and sums that cut them."""
    b = ProgramBuilder("many")
    x = b.input("x", "f32", [64, 64])
    for k in range(MANY):
        is_sum = k % 10 == 9
        y = (b.output if k == MANY - 1 else b.buffer)(f"b{k}", "f32", [64] if is_sum else [64, 64])
        if is_sum:
            with b.loop(f"op{k}", [64], reduce=[64]) as loop:
                i, j = loop.vars
                loop.store(y, (i,), loop.sum(loop.load(x, i, j)))
        else:
            with b.loop(f"op{k}", [64, 64]) as loop:
                i, j = loop.vars
                old = loop.load(x, i) if k % 10 == 0 and k else loop.load(x, i, j)
                loop.store(y, (i, j), old * 1.5 + float(k % 7))
        x = y
    return b.build()


@pytest.mark.exhaustive
def test_ten_thousand_operations_are_shown(tmp_path: Path) -> None:
    source, out = tmp_path / "many.txt", tmp_path / "out.html"
    source.write_text(show_program(many()))
    shown = report(source, out, "--policy", "memory")
    assert len({name for row in shown["kernels"] for name in row["ops"]}) > MANY * 0.8
    assert "others" not in shown
    seen = walked(out, *VIEWS, "?op9999")
    assert seen["#kernels rows"] < 1000  # as many as one can read
    assert seen["?op9999 leads to"].startswith("#kernel?name=")
    opened = in_browser(out, "op9999")
    assert opened["errors"] == []
    assert opened["ready_ms"] < 6000


def test_in_the_frame_of_a_notebook_links_stay_inside_the_page(tmp_path: Path, demo: Path) -> None:
    if chromium_path() is None:
        pytest.skip("no Chromium: the page was not opened in a browser")
    out, notebook = tmp_path / "out.html", tmp_path / "notebook.html"
    report(demo, out, "--only")
    inside = html.escape(out.read_text(), quote=True)
    notebook.write_text(f'<main><h2>notebook</h2></main><iframe srcdoc="{inside}"></iframe>')
    with Chromium() as browser:
        tab = browser.open(notebook)
        frame = "document.querySelector('iframe').contentDocument"
        tab.wait(f"{frame}.querySelector('nav a[data-view=memory]')")
        tab.evaluate(f"{frame}.querySelector('nav a[data-view=memory]').click()")
        tab.wait(f"{frame}.querySelector('main h2').textContent.startsWith('Memory')")
        assert tab.evaluate("document.querySelector('h2').textContent") == "notebook"


@pytest.mark.parametrize(
    ("number", "word", "leads_to"),
    [
        ("demo", "probs", "#memory?block=probs"),
        ("000", "op44", "#kernel?name="),
        ("001", "buf921", "#memory?block=buf921"),
        ("002", "XLA", ""),
        ("003", "op2", "#kernel?name=op2"),
    ],
)
def test_a_browser_shows_the_page_without_a_word_on_the_console(
    number: str, word: str, leads_to: str, tmp_path: Path, demo: Path
) -> None:
    out = tmp_path / "out.html"
    report(demo if number == "demo" else seed(number), out, "--only")
    seen = in_browser(out, word)
    assert seen["errors"] == []
    assert seen["requests"] == []
    assert seen["ready_ms"] < 3000
    assert seen["schemes"]["light"] != seen["schemes"]["dark"]
    assert all(length > 50 for length in seen["views"].values())
    assert seen["painted"]
    assert seen["tip"]
    if "roof_tip" in seen:  # a program without known arithmetic has no dots
        assert "flop per byte" in seen["roof_tip"]
        assert "flop per byte" in seen["roof_said"]
    assert number == "002" or "roof_tip" in seen
    assert seen["focused"] == "search"  # the key / leads there
    assert seen["unnamed"] == []
    assert seen["wider"] <= 0  # nothing to scroll sideways for
    assert set(seen["tabbed"]) & {"A", "INPUT", "BUTTON"}
    if leads_to:
        assert seen["found"].startswith(leads_to)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_can_be_read(name: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the scripts were not checked")
    path = files("treadle.page").joinpath("assets", name)
    done = subprocess.run([node, "--check", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_text_in_the_data_cannot_end_the_script_or_pass_for_the_page(tmp_path: Path) -> None:
    bad = "</script><script>alert(1)</script><!-- $SCRIPT $DATA &amp;"
    path = tmp_path / "out.html"
    path.write_text(page(head("report", bad)))
    assert data_of(path)["title"] == bad
    assert "<script>alert" not in path.read_text().split("</title>")[1]


def test_a_problem_of_memory_alone_has_a_page(tmp_path: Path) -> None:
    source = tmp_path / "problem.csv"
    source.write_text("id,lower,upper,size\na,0,4,8\nb,2,6,4\nc,5,9,8\n")
    shown = report(source, tmp_path / "out.html")
    assert shown["memory"][-1]["peak_bytes"] == 12
    assert walked(tmp_path / "out.html", "#memory")["links"] == ["#memory"]


def test_what_has_no_page_is_refused_in_one_line(
    tmp_path: Path, demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "s.json"
    assert main(["schedule", str(demo), "--save", str(saved)]) == 0
    capsys.readouterr()
    assert main(["report", str(saved), "-o", str(tmp_path / "x.html")]) == 2
    said = capsys.readouterr().err
    assert "a file of kind schedule" in said
    assert not (tmp_path / "x.html").exists()
    assert main(["report", str(demo), "-o", str(demo)]) == 2
    assert "would overwrite" in capsys.readouterr().err
    table = tmp_path / "p.csv"
    table.write_text("id,lower,upper,size\na,0,4,8\n")
    out = str(tmp_path / "x.html")
    assert main(["report", str(table), "-o", out, "--dot", str(tmp_path / "g.dot")]) == 2
    assert "--dot needs a program" in capsys.readouterr().err


def test_a_pair_that_came_together_later_is_not_left_on_the_table() -> None:
    kernels = [{"name": "k0", "ops": ["a", "b"]}, {"name": "k1", "ops": ["c"]}]
    refused = {"question": "fuse", "ok": False, "code": "FUS010", "facts": {"bytes": 8}}
    rows = [{**refused, "ops": ["a", "b"]}, {**refused, "ops": ["a", "c"]}]
    assert [row["ops"] for row in apart([*rows, *rows], kernels)] == [["a", "c"]]
