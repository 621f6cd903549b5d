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
from browser import Chromium, Tab, chromium_path

from treadle.lab.cli import main

SEEDS = Path(__file__).resolve().parents[4] / "shared" / "seeds"
WALK_PAGE = Path(__file__).with_name("walk_page.mjs")
VOID = {"meta", "input", "br", "link", "img", "hr"}
NAMESPACE = "http://www.w3.org/2000/svg"


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


def assert_is_trace(text: str) -> list[dict[str, Any]]:
    """Hold a trace against the format that Chrome and Perfetto read; gives its events."""

    def no_constant(word: str) -> float:
        raise AssertionError(f"{word} is no JSON")

    trace = json.loads(text, parse_constant=no_constant)
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData", "metadata"}
    assert trace.get("displayTimeUnit", "ms") in ("ms", "ns")
    needed = {"X": {"ts", "dur", "tid"}, "C": {"ts", "args"}, "M": {"args"}, "i": {"ts", "s"}}
    threads, named = set(), set()
    for event in trace["traceEvents"]:
        assert event["ph"] in needed, event
        assert needed[event["ph"]] | {"name", "pid"} <= set(event), event
        assert isinstance(event["name"], str)
        assert event["name"]
        assert all(type(event[key]) is int for key in ("pid", "tid") if key in event), event
        assert all(event[key] >= 0 for key in ("ts", "dur") if key in event), event
        assert isinstance(event.get("args", {}), dict)
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name"), event
            assert isinstance(event["args"]["name"], str)
            named.add((event["name"], event["pid"], event.get("tid")))
        if event["ph"] == "X":
            threads.add(("thread_name", event["pid"], event["tid"]))
    assert threads <= named  # every lane says what it is
    return list(trace["traceEvents"])


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


CALM_MS, TRIES = 2000, 5
"""A page that took longer is opened again, so often at most: the machine may be busy."""


def in_browser(page: Path, word: str) -> dict[str, Any]:
    """What a person sees who goes through a page in Chromium and searches it for a word."""
    if chromium_path() is None:
        pytest.skip("no Chromium: the page was not opened in a browser")
    seen: dict[str, Any] = {"views": {}, "schemes": {}, "unnamed": []}
    with Chromium() as browser:
        tab = browser.open(page)
        tries = [tab.ready_ms]
        while min(tries) > CALM_MS and len(tries) < TRIES:
            tab = browser.open(page)
            tries.append(tab.ready_ms)
        seen["ready_ms"] = min(tries)
        for scheme in ("light", "dark"):
            tab.colours(scheme)
            seen["schemes"][scheme] = tab.evaluate(
                "getComputedStyle(document.body).backgroundColor"
            )
        names = tab.evaluate("[...document.querySelectorAll('#views a')].map(a => a.dataset.view)")
        for name in names:
            link = f"#views a[data-view={name}]"
            tab.click(link)
            tab.wait(f"document.querySelector('{link}').getAttribute('aria-current') === 'page'")
            seen["views"][name] = tab.evaluate("document.querySelector('main').innerText.length")
            seen["unnamed"] += tab.evaluate(UNNAMED)
            _point_at_pictures(tab, seen)
        tab.evaluate("document.querySelector('main').focus()")
        tab.press("/")
        seen["focused"] = tab.evaluate("document.activeElement.id")
        tab.type(word)
        tab.press("Enter")
        seen["found"] = tab.evaluate("location.hash")
        seen["tabbed"] = []
        for _ in range(6):
            tab.press("Tab")
            seen["tabbed"].append(tab.evaluate("document.activeElement.tagName"))
        seen["unnamed"] += tab.evaluate(UNNAMED)
        seen["wider"] = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
        seen["errors"], seen["requests"] = tab.complaints(), tab.requests()
    return seen


UNNAMED = """[...document.querySelectorAll('button, input, select, canvas, a, th')].filter(e =>
  !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length)))
  .map(e => e.outerHTML)"""
"""What a screen reader has no name for."""


def _point_at_pictures(tab: Tab, seen: dict[str, Any]) -> None:
    """Move the mouse over the drawings of a view, and walk through them by keys."""
    if tab.evaluate("Boolean(document.querySelector('main svg.roofline circle'))"):
        left, top, width, height = tab.place_of("main svg.roofline circle")
        tab.point(left + width / 2, top + height / 2)
        tab.point(left + width / 2, top + 0.75)
        seen["roof_tip"] = tab.evaluate("document.getElementById('tip').textContent")
        tab.evaluate("document.querySelector('svg.roofline').focus()")
        tab.press("ArrowRight")
        seen["roof_said"] = tab.evaluate("document.getElementById('say').textContent")
    if not tab.evaluate("Boolean(document.querySelector('main canvas[tabindex]'))"):
        return
    left, top, width, height = tab.place_of("main canvas[tabindex]")
    for part in (0.2, 0.5, 0.8):
        tab.point(left + width * part, top + height * 0.6)
        seen["tip"] = tab.evaluate("document.getElementById('tip').textContent") or seen.get("tip")
    tab.evaluate("document.querySelector('main canvas[tabindex]').focus()")
    tab.press("ArrowRight", "ArrowUp", "ArrowUp", "+")
    seen["painted"] = tab.evaluate(
        "(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v !== 0))"
        "(document.querySelector('main canvas[tabindex]'))"
    )
