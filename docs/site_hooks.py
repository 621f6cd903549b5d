"""What the site has besides the files of docs/: the README first, and a page of each code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "src" / "treadle" / "core" / "pages"


def generated_pages() -> dict[str, str]:
    """Path in the site -> text, of every page that is made from other files."""
    readme = (ROOT / "README.md").read_text("utf-8").replace("](docs/", "](")
    found = {"index.md": readme}
    rows = ["# Codes", "", "`treadle explain CODE` prints the same.", ""]
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text("utf-8")
        found[f"codes/{path.name}"] = text
        rows.append(f"- [{text.partition(chr(10))[0].removeprefix('# ')}]({path.name})")
    found["codes/index.md"] = "\n".join([*rows, ""])
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages; called by MkDocs."""
    from mkdocs.structure.files import File

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files
