"""Running commands and opening pages, for the tests of pages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from treadle.lab.cli import main

SEEDS = Path(__file__).resolve().parents[4] / "shared" / "seeds"
WALK_PAGE = Path(__file__).with_name("walk_page.mjs")
VOID = {"meta", "input", "br", "link", "img", "hr"}
NAMESPACE = "http://www.w3.org/2000/svg"
OPEN_PAGE = Path(__file__).with_name("open_page.mjs")
NO_BROWSER = 3


def seed(number: str) -> Path:
    found = sorted(SEEDS.glob(f"{number}_*.txt"))
    if not found:
        pytest.skip("the seed documents are not beside this checkout")
    return found[0]


def command(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    """What a command prints with --json."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


class _Reader(HTMLParser):
    """The elements of a page, checked to be closed in order, and its data."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.text: dict[str, list[str]] = {}
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert "src" not in given, "a page loads nothing"
        assert tag != "link", "a page loads nothing"
        if given.get("id"):
            assert given["id"] not in self.ids, f"two elements are called {given['id']}"
            self.ids.add(str(given["id"]))
        self.inside = given.get("id") or tag
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag
        self.inside = ""

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.inside, []).append(data)


def data_of(path: Path) -> dict[str, Any]:
    """The data in a page, which must be sound HTML that loads nothing."""
    reader = _Reader()
    text = path.read_text("utf-8")
    reader.feed(text)
    reader.close()
    assert not reader.open, f"not closed: {reader.open}"
    without = re.sub(r'(?s)id="data">.*?</script>', "", text)
    assert set(re.findall(r"https?://[^\s'\"]+", without)) <= {NAMESPACE}
    assert "default-src 'none'" in without
    found = json.loads("".join(reader.text["data"]))
    assert isinstance(found, dict)
    return found


def walked(page: Path, *places: str) -> dict[str, Any]:
    """What the script of a page draws at these addresses; skips where there is no node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the script of the page was not run")
    words = [node, str(WALK_PAGE), str(page), *places]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def in_browser(page: Path, word: str) -> dict[str, Any]:
    """What a person sees who goes through a page in Chromium and searches it for a word.

    Skips where node has no puppeteer-core (NODE_PATH) or there is no Chromium.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the page was not opened in a browser")
    words = [node, str(OPEN_PAGE), str(page), word]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode == NO_BROWSER:
        pytest.skip("no puppeteer-core or no Chromium: the page was not opened in a browser")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found
