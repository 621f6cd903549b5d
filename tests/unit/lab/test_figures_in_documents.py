"""Figures in the README and in docs come from commands run here, or from saved measurements.

Each claim is a phrase made from what a command prints with `--json`, or from a file in
`bench/results` (which names the command that made it). The phrase must stand in the document as it
is; and no row of a table may have a figure that no claim accounts for.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from treadle.core.reading import MAX_BYTES
from treadle.ir.numerics import TORCH as TORCH_NUMERICS
from treadle.kernel import choose_cpu, choose_gpu
from treadle.lab.cli import main
from treadle.schedule.policy import POLICIES

ROOT = Path(__file__).resolve().parents[3]
SEEDS = ROOT.parent / "shared" / "seeds"
RESULTS = ROOT / "bench" / "results"
FIGURE = re.compile(
    r"\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?= ?(?:[KMG]i?B|B|CPU s|ms|s|kernels|waits|such waits|%)\b)"
    r"|\d+(?:\.\d+)?(?= %)"
)
"""A number with separators of thousands, or one with a unit."""

Data = dict[str, Any]


class Claim(NamedTuple):
    """A phrase of a document: which, what it is made from, and how."""

    document: str
    source: str
    """A command with a seed's number for its file, or the name of a saved measurement."""
    phrase: Callable[[Data], str]


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def resnet_before(d: Data) -> str:
    b = d["before"]
    moved, peak = gigabytes(b["bytes_moved"]), gigabytes(b["peak_bytes"])
    return f"({b['ops']:,} operations) | {b['kernels']} kernels, {moved} moved, peak {peak} |"


def resnet_after(d: Data) -> str:
    a = d["after"]
    moved, peak = gigabytes(a["bytes_moved"]), gigabytes(a["peak_bytes"])
    return f"| {a['kernels']} kernels, {moved}, {peak}, in "


def fsdp(d: Data) -> str:
    b, a = d["before"], d["after"]
    return (
        f"| {b['kernels']} kernels, {b['exposed_waits']} waits with nothing to hide them, "
        f"peak {b['peak_bytes']:,} B | {a['kernels']} kernels, {a['exposed_waits']} such waits, "
        f"peak {a['peak_bytes']:,} B |"
    )


def decode(d: Data) -> str:
    proven = " (proven minimal)" if d["is_optimal"] else ""
    return (
        f"| {d['before']['temp_bytes']:,} B of scratch | {d['after']['temp_bytes']:,} B{proven} |"
    )


def minimalloc(d: Data) -> str:
    theirs, ours = d["minimalloc_seconds"], d["instances_seconds"]
    return f"| {theirs:.1f} CPU s (its own solver) | {ours:.1f} CPU s, all solved |"


def ordered(counted: str, words: str) -> Callable[[Data], str]:
    def phrase(d: Data) -> str:
        row = d["seed_001"][counted]["12000_tries"]
        return f"| {words} | {row['given']:,} | {row['found']:,} | {row['bound']:,} |"

    return phrase


def generated(words: str, *models: str) -> Callable[[Data], str]:
    """A row about models of which the same share is generated."""

    def phrase(d: Data) -> str:
        rows = [m for m in d["models"] if m["model"] in models]
        assert len(rows) == len(models)
        (shares,) = {(percent(m["share_generated"]), percent(m["share_of_loops"])) for m in rows}
        return f"| {words} | {', '.join(shares)} |"

    return phrase


def percent(part: float) -> str:
    return "100 %" if part == 1 else f"{100 * part:.1f} %"


def largest_errors(d: Data) -> str:
    of_results, of_gradients = [
        f"{max(m[key] for m in d['models']):.1e}".replace("e-0", "e-")
        for key in ("forward_error", "gradient_error")
    ]
    return f"{of_results} of the tensor's largest element, of any gradient {of_gradients}."


def overlap_of(mode: str, words: str) -> Callable[[Data], str]:
    """A row about the least overlap that a mode reached."""

    def phrase(d: Data) -> str:
        return f"| {words} | {percent(min(row[mode]['overlap'] for row in d['fsdp']))} |"

    return phrase


def against_the_peer(workload: str) -> Callable[[Data], str]:
    """The row of a workload, or of all of them."""

    def phrase(d: Data) -> str:
        (row,) = [r for r in d["rows"] if r["workload"] == workload]
        return f"| `{workload}` | {row['over_peer']:.2f} | {row['over_eager']:.2f} |"

    return phrase


def peaks_on_a_cpu(workload: str) -> Callable[[Data], str]:
    """The row of a workload: KiB of eager mode, the peer and ours; then our heap, prediction."""

    def phrase(d: Data) -> str:
        (row,) = [r for r in d["rows"] if r["workload"] == workload]
        ours = row["treadle"]
        cells = [row[backend]["peak"] for backend in ("eager", "inductor", "treadle")]
        kib = [f"{n / 1024:,.0f}" for n in (*cells, ours["predicted"], ours["heap"])]
        return f"| `{workload}` | {' | '.join(kib)} |"

    return phrase


def mean_against_the_peer(d: Data) -> str:
    return f"| geometric mean | {d['over_peer']:.2f} | {d['over_eager']:.2f} |"


def on_a_gpu(workload: str) -> Callable[[Data], str]:
    """The row of a workload: ours and the peer's in turn."""

    def phrase(d: Data) -> str:
        rows = {r["backend"]: r for r in d["rows"] if r["workload"] == workload}
        forms = {"ms": ".3g", "gpu_ms": ".3g", "compile_s": ".1f", "peak_mib": ".0f"}
        cells = [
            f"{rows[backend][key]:{form}}"
            for key, form in forms.items()
            for backend in ("treadle", "inductor")
        ]
        return f"| `{workload}` | {' | '.join(cells)} |"

    return phrase


def mean_on_a_gpu(d: Data) -> str:
    mean = d["mean"]
    compiling = f"{mean['compile']:.2f} of the peer's time"
    speed = f"{mean['speed_wall']:.2f} | | {mean['speed_gpu']:.2f}"
    return f"| geometric mean of speed | {speed} | | {compiling} |"


def in_one_sentence(d: Data) -> str:
    return f"{d['mean']['speed_wall']:.2f} on an H200"


def in_one_sentence_on_a_cpu(d: Data) -> str:
    return f"{d['ms_over_peer']:.2f} times its speed on twelve workloads on one thread of a CPU"


def single_functions_on_a_gpu(d: Data) -> str:
    speeds = f"{d['gpu_over_peer']:.2f} of the peer's speed and calls {d['over_peer']:.2f}"
    return f"took {speeds}"


def flex_against_the_peer(d: Data) -> str:
    forward = [r["peer_forward_ms"] / r["ours_forward_ms"] for r in d["rows"]]
    return f"between {min(forward):.2f} and {max(forward):.2f} times the peer's speed forward"


WORKLOADS = (
    "ssm_scale",
    "qwen_mlp_stack",
    "llama_train",
    "resnet_train",
    "mlp_train",
    "layernorm_train",
    "rmsnorm_train",
    "softmax_xent_train",
    "adamw_foreach",
    "lstm_unrolled",
    "pointwise_mix",
    "embedding_scatter",
)
README, MEMORY, TORCH = "README.md", "docs/memory.md", "docs/torch.md"
PERFORMANCE, COLLECTIVES = "docs/performance.md", "docs/collectives.md"
CLAIMS = (
    Claim(README, "schedule 001", resnet_before),
    Claim(README, "schedule 001", resnet_after),
    Claim(README, "schedule 000", fsdp),
    Claim(README, "plan 002", decode),
    Claim(README, "memory_planner", minimalloc),
    Claim(
        MEMORY,
        "ordering",
        ordered("as_counted_by_its_maker", "as its maker does, nothing in place"),
    ),
    Claim(MEMORY, "ordering", ordered("as_it_can_run", "as it can run, in place")),
    *[
        Claim(TORCH, "models", generated(words, *models))
        for words, models in {
            "Llama, Qwen3, Gemma, Phi, GPT-2, OPT, Bloom, Falcon, Mamba": (
                "llama",
                "qwen3",
                "gemma",
                "phi",
                "gpt2",
                "opt",
                "bloom",
                "falcon",
                "mamba",
            ),
            "BERT, DistilBERT, T5": ("bert", "distilbert", "t5"),
            "ViT, DeiT, CLIP, ConvNeXt, ResNet, Swin, Whisper's encoder, Wav2Vec2": (
                "vit",
                "deit",
                "clip",
                "convnext",
                "resnet",
                "swin",
                "whisper_encoder",
                "wav2vec2",
            ),
            "Mixtral": ("mixtral",),
            "Mixtral, experts as a grouped product": ("mixtral_grouped",),
            "Mixtral, experts one by one": ("mixtral_loop",),
        }.items()
    ],
    Claim(TORCH, "models", largest_errors),
    *[Claim(PERFORMANCE, "cpu_workloads", against_the_peer(name)) for name in WORKLOADS],
    Claim(PERFORMANCE, "cpu_workloads", mean_against_the_peer),
    *[Claim(PERFORMANCE, "cpu_peaks", peaks_on_a_cpu(name)) for name in WORKLOADS],
    *[Claim(PERFORMANCE, "gpu_workloads", on_a_gpu(name)) for name in WORKLOADS],
    Claim(PERFORMANCE, "gpu_workloads", mean_on_a_gpu),
    Claim(README, "gpu_workloads", in_one_sentence),
    Claim(README, "cpu_shared_run", in_one_sentence_on_a_cpu),
    Claim(PERFORMANCE, "gpu_cases", single_functions_on_a_gpu),
    Claim(PERFORMANCE, "flex", flex_against_the_peer),
    Claim(COLLECTIVES, "collectives", overlap_of("simple", "`simple`")),
    Claim(COLLECTIVES, "collectives", overlap_of("model", "`model`")),
    Claim(COLLECTIVES, "collectives", overlap_of("buckets", "`model`, buckets")),
)


@cache
def data_of(source: str) -> Data:
    command, _, seed = source.partition(" ")
    if not seed:
        found: Data = json.loads((RESULTS / f"{source}.json").read_text("utf-8"))
        return found
    paths = sorted(SEEDS.glob(f"{seed}_*.txt"))
    if not paths:
        pytest.skip(f"seed {seed} is not beside the repository")
    return run(command, str(paths[0]))


def run(command: str, path: str) -> Data:
    """What a command says, and how much CPU time it took: that no other process changes."""
    out, start = io.StringIO(), time.process_time()
    with redirect_stdout(out):
        assert main([command, path, "--json"]) == 0
    found: Data = json.loads(out.getvalue())
    return {**found, "cpu_seconds": time.process_time() - start}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: f"{c.document}-{c.source}")
def test_what_the_document_says_is_what_the_command_prints(claim: Claim) -> None:
    text = (ROOT / claim.document).read_text("utf-8")
    assert claim.phrase(data_of(claim.source)) in text


def test_the_seconds_in_the_readme_are_about_right() -> None:
    text = (ROOT / README).read_text("utf-8")
    (said,) = re.findall(r"kernels, [^|]*, in (\d+) s \|", text)
    found = data_of("schedule 001")
    assert found["seconds"] > 0
    assert found["cpu_seconds"] < 5 * float(said), "five times: other machines"


def test_settings_in_documents_are_those_of_the_code() -> None:
    limits = (ROOT / "docs/limits.md").read_text("utf-8")
    assert f"| files | at most {MAX_BYTES >> 20} MiB, UTF-8 |" in limits
    factor = POLICIES["balanced"].peak_factor
    assert factor is not None
    page = (ROOT / "docs/scheduling.md").read_text("utf-8")
    assert f"up to the given peak + {round(100 * (factor - 1))} % | default |" in page
    assert f"every {TORCH_NUMERICS.block * choose_cpu.VECTOR:,} elements |" in page
    assert f"| up to {choose_cpu.LANES:,} columns side by side" in page
    triton = (ROOT / "docs/codegen_triton.md").read_text("utf-8")
    assert f"| {choose_gpu.POINTS:,} points along" in triton
    assert f"a square of {choose_gpu.SQUARE} " in triton
    assert f"| whole rows up to {choose_gpu.LONGEST_KEPT:,} elements" in triton
    assert f" {choose_gpu.BLOCK:,} at a time |" in triton
    assert f"| {choose_gpu.COLUMNS} columns, {choose_gpu.ROWS} rows at a time |" in triton


def rows_with_figures(document: Path) -> list[tuple[str, list[str]]]:
    rows = [line for line in document.read_text("utf-8").splitlines() if line.startswith("|")]
    found = [(row, [m[0] for m in FIGURE.finditer(row)]) for row in rows]
    return [(row, figures) for row, figures in found if figures]


def test_no_table_has_a_figure_that_nothing_accounts_for() -> None:
    unclaimed = []
    for document in [ROOT / README, *sorted((ROOT / "docs").glob("*.md"))]:
        name = str(document.relative_to(ROOT)).replace("\\", "/")
        phrases = [c.phrase(data_of(c.source)) for c in CLAIMS if c.document == name]
        claimed = {m[0] for phrase in phrases for m in FIGURE.finditer(phrase)}
        for row, figures in rows_with_figures(document):
            unclaimed += [(name, f, row[:60]) for f in figures if f not in claimed]
    # The seconds, above, and settings that are read from the code.
    allowed = {("README.md", "2"), ("docs/limits.md", "256")}
    allowed |= {("docs/scheduling.md", figure) for figure in ("2", "4,096", "1,024")}
    allowed |= {("docs/codegen_triton.md", figure) for figure in ("1,024", "16,384", "2,048")}
    assert [u for u in unclaimed if u[:2] not in allowed] == []
