"""The files of config/ that `doi-proxy setup` copies, and the pages of docs/ that `doi-proxy runbook` prints.

A wheel has both in this package, a checkout beside `app`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from doi_proxy.system.files import read_regular
from doi_proxy.system.package_files import has_package_file, read_package_file

#: The largest file of a checkout that is read.
_MOST_BYTES: Final = 1024 * 1024


def read_shipped(path: str) -> str:
    """The text of a file of config/, such as `prometheus/alerts.yml`. Raises OSError without one."""
    return _read("config", path)


def read_manual_page(name: str) -> str:
    """A page of the manual in Markdown, such as `runbook`. Raises OSError without one."""
    return _read("docs", f"{name}.md")


def _read(folder: str, path: str) -> str:
    if has_package_file(__package__, folder, path):
        return read_package_file(__package__, folder, path).decode()
    return read_regular(Path(__file__).parents[4] / folder / path, _MOST_BYTES).decode()
