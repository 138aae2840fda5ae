"""The configuration of Sphinx for `make docs`: docs/ as a site with a search that needs no network."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app import __version__

project = "doi-proxy"
release = __version__
extensions = ["myst_parser"]
# The source folder is the repository: pages link to README.md, to the changelog and to the results of the benchmarks.
include_patterns = ["*.md", "docs/**.md", "bench/*.md", "contrib/*.md"]
root_doc = "docs/index"
# Anchors of headings are those that a code-hosting site gives them, so links work in both places.
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"doi-proxy {__version__}"
# The site loads nothing from other hosts, so it works behind a firewall.
html_theme_options = {"source_repository": "", "footer_icons": []}
