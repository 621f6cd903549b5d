"""What the documents say is true: examples run, commands exist, invariants are all listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treadle.core.codes import load_codes
from treadle.ir.text import parse_program
from treadle.lab.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()


def test_the_example_in_the_readme_runs_and_prints_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, code = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    promised = re.search(r"# (PeakPoint\(.*\))", code)
    assert promised is not None
    assert promised.group(1) in printed
    assert printed.startswith("treadle 1\nprogram demo\n")


@pytest.mark.torch
def test_the_readme_begins_with_a_compiled_model(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    first_screen = "\n".join(README.splitlines()[:24])
    assert 'torch.compile(model, backend="treadle")' in first_screen
    code, _ = re.findall(r"```python\n(.*?)```", README, re.S)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU()), torch.randn(2, 4)
    import treadle.torch  # noqa: F401 - a source tree may not be installed

    torch._dynamo.reset()
    names = {"model": model, "x": x}
    exec(compile(code, "README.md", "exec"), names)
    torch.testing.assert_close(names["fast"](x), model(x))
    assert "tensor([[" in capsys.readouterr().out


def test_the_readme_links_every_page_and_no_link_is_broken() -> None:
    links = {link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link}
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert pages <= links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_glossary_has_every_word_once_and_points_to_files_that_exist() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    words, meanings, places = zip(*rows[1:], strict=True)
    single = [word for entry in words for word in entry.split(", ")]
    assert len(single) == len(set(single)) > 30
    assert all(meanings)
    for place in places:
        files = re.findall(r"`([\w/]+\.py)`", place)
        assert files, place
        for file in files:
            assert (ROOT / "src" / "treadle" / file).exists(), file
    assert "(glossary.md)" in (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("word", ["heir", "spot", "tenant"])
def test_words_that_the_field_has_better_ones_for_are_gone(word: str) -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "src/treadle/core/pages").glob("*.md")]
    found = [page.name for page in pages if re.search(rf"\b{word}s?\b", page.read_text(), re.I)]
    assert not found, f"{word}: {found}"


def test_the_package_says_its_licence() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    for words in ("Apache License", "Version 2.0, January 2004", "END OF TERMS AND CONDITIONS"):
        assert words in text
    assert len(text.split()) == 1581  # all of it


def test_the_versions_of_torch_are_those_that_compat_knows() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "torch>=2.11,<2.14" in project["optional-dependencies"]["torch"]
    assert "2.11 to 2.13" in (ROOT / "docs" / "limits.md").read_text()
    source = (ROOT / "src" / "treadle" / "frontends" / "torch" / "compat.py").read_text()
    assert "(2.11 to 2.13)" in source


def test_the_readme_names_only_commands_that_exist() -> None:
    named = set(re.findall(r"^treadle (\w+)", README, re.M))
    assert named == set(COMMANDS)


def test_make_targets_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_program_in_the_ir_reference_is_in_standard_form() -> None:
    text = (ROOT / "docs" / "ir.md").read_text()
    block = re.search(r"```\n(treadle 1\n.*?)```", text, re.S)
    assert block is not None
    program = parse_program(block.group(1))
    assert program.name == "demo"
    assert [s.name for s in program.sizes] == ["n"]


def test_the_architecture_lists_every_invariant() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    listed = set(re.findall(r"^\| ((?:IR|CERT)\d+) \|", text, re.M))
    assert listed == {c for c in load_codes() if c.startswith(("IR", "CERT"))}


def test_every_decision_is_in_the_index_of_decisions() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text()
    for page in folder.glob("0*.md"):
        assert page.name in index


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_codes_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    source = {str(path.relative_to(ROOT)) for path in ROOT.glob("*/**/*.py")}
    named = re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*\.py)`", text)
    assert [name for name in named if not any(f"/{s}".endswith(f"/{name}") for s in source)] == []
    codes = set(load_codes())
    families = {code.rstrip("0123456789") for code in codes}
    said = {
        c for c in re.findall(r"\b[A-Z]{2,4}\d{3}\b", text) if c.rstrip("0123456789") in families
    }
    assert said <= codes
