"""How Sphinx builds docs/ as a site that can be searched without a network: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app import __version__

project = "doi-proxy"
release = __version__
extensions = ["myst_parser"]
# The source folder is the repository: pages link to README.md, to the changelog and to the results of the benchmarks.
include_patterns = ["*.md", "docs/**.md", "bench/*.md"]
root_doc = "docs/index"
# A heading is linked as it is on the web pages that show the same files.
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"doi-proxy {__version__}"
# The site asks no other host for anything, so it can be read behind a firewall.
html_theme_options = {"source_repository": "", "footer_icons": []}
