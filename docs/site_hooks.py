"""What the site has besides the files of docs/: README, API reference, a page of each code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "src" / "treadle" / "core" / "pages"
# The options are read from the package, which needs nothing else; it need not be installed.
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "src")]

from api_reference import api_page  # noqa: E402

# The search of the site needs a server; this one works in a file, too.
FILTER = """
<p><label>find a code: <input id="code-filter" type="search" placeholder="cycle, FUS010"></label>
<span id="code-count" role="status"></span></p>
<script>
document.addEventListener('DOMContentLoaded', () => {
  const [field, count] = ['code-filter', 'code-count'].map(id => document.getElementById(id));
  const rows = [...document.querySelectorAll('table tbody tr')];
  const show = () => {
    const words = field.value.toLowerCase().split(' ').filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
    count.textContent = rows.filter(row => !row.hidden).length + ' of ' + rows.length;
  };
  field.addEventListener('input', show);
  show();
});
</script>
"""


def generated_pages() -> dict[str, str]:
    """Path in the site -> text, of every page that is made from other files."""
    readme = (ROOT / "README.md").read_text("utf-8").replace("](docs/", "](")
    found = {"index.md": readme, "api.md": api_page()}
    rows = ["# Codes", "", "`treadle explain CODE` prints the same.", FILTER]
    rows += ["| code | what it means |", "|---|---|"]
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text("utf-8")
        found[f"codes/{path.name}"] = text
        title = text.partition("\n")[0].removeprefix("# ")
        rows.append(f"| [{title}]({path.name}) | {meaning(text)} |")
    found["codes/index.md"] = "\n".join([*rows, ""])
    return found


def meaning(page: str) -> str:
    """The first paragraph of what a code means, in one line."""
    _, _, behind = page.partition("## What it means\n")
    return " ".join(behind.strip().partition("\n\n")[0].split()).replace("|", "\\|")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages; called by MkDocs."""
    from mkdocs.structure.files import File

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files
