"""The site has every document and a page of every code."""

from __future__ import annotations

import importlib.util
import re
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
    written = {path.name for path in (ROOT / "docs").glob("*.md")} | {"index.md", "codes/index.md"}
    assert named == written


def test_every_code_has_its_page_and_its_line_in_the_index() -> None:
    pages = generated()
    assert {name for name in pages if name.startswith("codes/")} == {
        "codes/index.md", *[f"codes/{code}.md" for code in load_codes()]
    }  # fmt: skip
    for code, page in load_codes().items():
        assert f"[{code}: {page.title}]({code}.md)" in pages["codes/index.md"]


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
