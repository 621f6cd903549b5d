"""No file names a machine, and none carries reminders."""

from pathlib import Path

import pytest
from house_files import forbidden_text, project_files
from house_tree import ROOT

SLASH = "/"


def test_no_file_of_the_project_contains_forbidden_text() -> None:
    files = [path for path in project_files() if (ROOT / path).is_file()]
    assert "pyproject.toml" in files
    findings = [
        finding for path in files for finding in forbidden_text(path, (ROOT / path).read_bytes())
    ]
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("word", ["work", "root", "home"])
def test_a_machine_path_is_found(word: str) -> None:
    path = f"{SLASH}{word}{SLASH}x"
    for line in (path, f"open('{path}')", f"a = {path}", f"-I{SLASH}usr:{path}"):
        assert list(forbidden_text("docs/a.md", f"\n{line}\n".encode())) == [
            f"docs/a.md:2: a path of one machine: {SLASH}{word}{SLASH}"
        ]


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME"])
def test_a_reminder_is_found(word: str) -> None:
    assert list(forbidden_text("a.py", f"# {word}: later".encode())) == [
        f"a.py:1: a reminder instead of an issue: {word}"
    ]


@pytest.mark.parametrize(
    "path, content",
    [
        ("docs/a.md", "https://example.org/home/x and src/work/y and ~/home/z"),
        ("docs/a.md", "mastodonte and todos"),
        ("tests/corpus/a.hlo", f"source_file={SLASH}root{SLASH}m.py"),
    ],
)
def test_should_not_find_what_only_looks_alike(path: str, content: str) -> None:
    assert list(forbidden_text(path, content.encode())) == []


def test_should_not_stumble_over_binary_files() -> None:
    assert list(forbidden_text("a.png", b"\xff\xfe\x00/")) == []


def test_code_next_to_foreign_data_is_ours() -> None:
    assert list(forbidden_text("tests/corpus/a.py", f"{SLASH}root{SLASH}".encode()))


def test_files_are_found_without_git(tmp_path: Path) -> None:
    for name in ("a.py", ".venv/b.py", "src/c.py", "build/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert list(project_files(tmp_path)) == ["a.py", "src/c.py"]
