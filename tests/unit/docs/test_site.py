"""The site has every document and a page of every code."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.core.codes import load_codes

ROOT = Path(__file__).resolve().parents[3]


def generated() -> dict[str, str]:
    path = ROOT / "docs" / "site_hooks.py"
    spec = importlib.util.spec_from_file_location("site_hooks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.generated_pages()
    return found


def test_every_document_can_be_reached() -> None:
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    named = set(re.findall(r"[\w/]+\.md", nav))
    written = {path.name for path in (ROOT / "docs").glob("*.md")} | {
        "index.md", "codes/index.md", "api.md"
    }  # fmt: skip
    assert named == written


def test_every_code_has_its_page_and_its_line_in_the_index() -> None:
    pages = generated()
    assert {name for name in pages if name.startswith("codes/")} == {
        "codes/index.md", *[f"codes/{code}.md" for code in load_codes()]
    }  # fmt: skip
    for code, page in load_codes().items():
        assert f"[{code}: {page.title}]({code}.md)" in pages["codes/index.md"]


def test_every_public_name_is_in_the_reference_with_its_promise() -> None:
    import treadle
    import treadle.ir.build
    from treadle.core.options import Options
    from treadle.ir.build_body import BodyBuilder, Value

    page = generated()["api.md"]
    for name in set(treadle.__all__) - {"__version__"}:
        assert f"### treadle.{name}\n" in page, name
    for name in ("package", "treadle"):
        assert f"### treadle.torch.{name}\n" in page, name
    for kind in (treadle.ir.build.ProgramBuilder, BodyBuilder, Value):
        part = page.partition(f"### {kind.__name__}\n")[2].partition("\n### ")[0]
        assert (kind.__doc__ or "?") in part
        for name, member in vars(kind).items():
            about = (getattr(member, "__doc__", None) or "").partition("\n")[0]
            if not name.startswith("_") and about and kind is not Value:
                assert about in part, f"{kind.__name__}.{name}"
    for one in dataclasses.fields(Options):
        assert f"| `{one.name}` |" in page, one.name
    # What is shown for a function is its signature, and what it returns has its own part.
    assert "measure: bool=True" in page.partition("### treadle.report\n")[2][:900]
    assert "### ReportPage\n" in page
    assert "### Package\n" in page
    memory = page.partition("### MemoryReport\n")[2].partition("\n### ")[0]
    assert "`peak_bytes: int`" in memory  # inherited
    assert "### GraphMemory\n" in page  # what its graphs are
    assert "out: str='report.html'" in page


def test_the_names_torch_is_asked_for_are_those_of_the_module() -> None:
    pytest.importorskip("torch")
    import treadle.torch

    page = generated()["api.md"]
    assert all(f"### treadle.torch.{name}\n" in page for name in treadle.torch.__all__)


def test_the_index_of_codes_is_searched_in_the_page_itself(tmp_path: Path) -> None:
    index = generated()["codes/index.md"]
    rows = [line for line in index.splitlines() if line.startswith("| [")]
    assert len(rows) == len(load_codes())
    assert all(len(row.split(" | ")[1]) > 10 for row in rows)  # what it means, not its title alone
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the script of the index was not run")
    (script,) = re.findall(r"(?s)<script>(.*?)</script>", index)
    (tmp_path / "try.mjs").write_text(f"""
const rows = {json.dumps(rows)}.map(textContent => ({{textContent, hidden: false}}));
const field = {{value: '', addEventListener: (_, f) => {{ field.fire = f; }}}}, count = {{}};
globalThis.document = {{
  addEventListener: (_, f) => f(), querySelectorAll: () => rows,
  getElementById: id => id === 'code-filter' ? field : count,
}};
{script}
const all = count.textContent;
field.value = 'CYCLE fus'; field.fire();
console.log(JSON.stringify([all, rows.filter(row => !row.hidden).map(row => row.textContent)]));
""")
    words = [node, str(tmp_path / "try.mjs")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said, found = json.loads(done.stdout)
    assert said == f"{len(rows)} of {len(rows)}"
    assert any("FUS010" in row for row in found)
    assert all("cycle" in row.lower() and "fus" in row.lower() for row in found)


def test_the_first_page_leads_to_the_others() -> None:
    links = re.findall(r"\]\((\w+\.md)\)", generated()["index.md"])
    assert links
    assert all((ROOT / "docs" / link).exists() or (ROOT / link).exists() for link in links)


def test_mkdocs_builds_it(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: the site was not built")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    assert (tmp_path / "codes" / "FUS010.html").exists()
    assert (tmp_path / "tour.html").exists()
    assert "treadle.load_package" in (tmp_path / "api.html").read_text("utf-8")
