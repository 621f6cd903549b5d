"""The pictures of the tour, from the page of seed 001: `python tour_pictures.py` makes them anew.

They are what the page draws, as SVG: the same data gives the same text, whatever browser draws it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "page"))

from browser import Chromium, chromium_path  # noqa: E402

from treadle.lab.cli import main  # noqa: E402
from treadle.page.html import asset  # noqa: E402

__all__ = ["DRAWN", "PICTURES", "chromium_path", "pictures"]
PICTURES = ROOT / "docs" / "pictures"
DRAWN = {
    "live_bytes.svg": ("#overview", "svg.live"),
    "roofline.svg": ("#roofline", "svg.roofline"),
    "graph.svg": ("#graph?near=op946&depth=1", ".frame svg"),
}
"""File: where on the page it is, and which element."""


def pictures(source: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every picture."""
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        page = Path(folder, "page.html")
        assert main(["report", str(source), "-o", str(page), "--only", "--json"]) == 0
        tab = browser.open(page)
        for name, (place, element) in DRAWN.items():
            tab.evaluate(f"location.hash = {place!r}")
            tab.wait(f"document.querySelector({element!r})")
            yield name, _alone(tab.evaluate(f"document.querySelector({element!r}).outerHTML"))


def _alone(text: str) -> str:
    """An element of a page as a file of its own: with the rules of the page that it needs."""
    rules = asset("page.css").splitlines()
    colours = rules[: next(k for k, line in enumerate(rules) if line.startswith("* {"))]
    style = "\n".join([*colours, *(line for line in rules if line.startswith("svg"))])
    head, _, rest = text.partition(">")
    if "xmlns" not in head:
        head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    lines = rest.replace("><", ">\n<")
    return f"{head}>\n<style>\n{style}\n</style>\n{lines}\n"


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    seeds = sorted((ROOT.parent / "shared" / "seeds").glob("001_*.txt"))
    for name, text in pictures(seeds[0]):
        (PICTURES / name).write_text(text)
