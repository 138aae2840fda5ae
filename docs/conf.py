"""The configuration of Sphinx for `make docs`: docs/ as a site with a search that needs no network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "app"))

from doi_proxy.system.version import read_version

ROOT: Final = Path(__file__).resolve().parents[1]

project = "doi-proxy"
release = read_version()
extensions = ["myst_parser"]
# The source folder is the repository: pages link to the changelog and to the results of the benchmarks. The start page
# has the text of README.
include_patterns = ["*.md", "docs/**.md", "bench/*.md", "contrib/*.md"]
exclude_patterns = ["README.md"]
root_doc = "docs/index"
# Anchors of headings are those that a code-hosting site gives them, so links work in both places.
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"doi-proxy {read_version()}"
# The site loads nothing from other hosts, so it works behind a firewall.
html_theme_options = {"source_repository": "", "footer_icons": []}
html_static_path = ["site"]
html_css_files = ["manual.css"]
html_search_scorer = str(ROOT / "docs/search_scorer.js")

#: A page in a list of the start page: its address without the ending, and the rest of its line.
_ENTRY: Final = re.compile(r"^- \[[^]]*\]\(([^)#]*)\.md\)(.*)", re.MULTILINE)
_PAGE: Final = re.compile(r"\]\(([^):#]*)\.md\)")
#: The addresses of README's links are those of the folder above.
_OWN_LINK: Final = re.compile(r"\]\((?!https?:|#)(docs/)?")


class NumberSearch(SearchEnglish):
    """A search that finds 404 and 9457. Sphinx drops words of digits, from the index and from what a reader types."""

    js_splitter_code = r"""
var splitQuery = (query) => query.split(/[^\p{Letter}\p{Number}_]+/gu).filter((word) => word)
  .map((word) => /^\d{3,5}$/.test(word) ? "number" + word : word);
"""

    def split(self, input: str) -> list[str]:  # noqa: A002
        """The words of a text, as `splitQuery` finds them in a query."""
        return [f"number{word}" if re.fullmatch(r"\d{3,5}", word) else word for word in super().split(input)]


def add_start(_: Sphinx, document: str, source: list[str]) -> None:
    """Add to the start page the text of README, and the pages of its lists as tables of contents, one for each door.

    A further page in the line of a page is below that page.
    """
    if document == root_doc:
        head, *doors = source[0].split("\n## ")
        heading, _, lead = head.partition("\n\n")
        readme = (ROOT / "README.md").read_text("utf-8").partition("\n\n")[2].partition("\n## Documentation")[0]
        readme = _OWN_LINK.sub(lambda link: "](" if link[1] else "](../", readme)
        first_screen, mark, rest = readme.partition("\n## ")
        parts = [heading, first_screen, lead, mark + rest]
        for door in doors:
            title = door.partition("\n")[0]
            parts.append(f"\n## {door}\n{_write_contents([page for page, _ in _ENTRY.findall(door)], title)}")
        source[0] = "\n".join(parts)
        return
    start = (ROOT / f"{root_doc}.md").read_text("utf-8")
    for page, rest in _ENTRY.findall(start):
        if _locate(page) == document:
            source[0] += _write_contents(_PAGE.findall(rest))


def _locate(page: str) -> str:
    """The document of an address on the start page."""
    return page.removeprefix("../") if page.startswith("../") else f"docs/{page}"


def _write_contents(pages: list[str], caption: str = "") -> str:
    """A hidden table of contents. `pages` are addresses on the start page."""
    entries = "\n".join(f"/{_locate(page)}" for page in pages)
    shown = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{shown}{entries}\n```\n" if pages else ""


def setup(application: Sphinx) -> None:
    """Called by Sphinx."""
    application.connect("source-read", add_start)
    application.add_search_language(NumberSearch)
