"""The configuration of Sphinx for `make docs`: docs/ as a site with a search that needs no network."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "app"))

from doi_proxy.system.version import read_version

project = "doi-proxy"
release = read_version()
extensions = ["myst_parser"]
# The source folder is the repository: pages link to README.md, to the changelog and to the results of the benchmarks.
include_patterns = ["*.md", "docs/**.md", "bench/*.md", "contrib/*.md"]
root_doc = "docs/index"
# Anchors of headings are those that a code-hosting site gives them, so links work in both places.
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"doi-proxy {read_version()}"
# The site loads nothing from other hosts, so it works behind a firewall.
html_theme_options = {"source_repository": "", "footer_icons": []}


def add_contents(_: Sphinx, document: str, source: list[str]) -> None:
    """Add the tables of contents of the site to its start page: the pages of its lists, one table for each heading."""
    if document == root_doc:
        for section in source[0].split("\n## ")[1:]:
            pages = re.findall(r"^- \[[^]]*\]\(([^)]*)\.md\)", section, re.MULTILINE)
            entries = "\n".join(page.replace("../", "/") for page in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {section.partition(chr(10))[0]}\n{entries}\n```\n"


def setup(application: Sphinx) -> None:
    """Called by Sphinx."""
    application.connect("source-read", add_contents)
