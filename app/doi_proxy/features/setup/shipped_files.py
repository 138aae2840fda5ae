"""The files of config/ that `doi-proxy setup` copies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from doi_proxy.system.files import read_regular
from doi_proxy.system.package_files import has_package_file, read_package_file

#: The largest file of a checkout that is read.
_MOST_BYTES: Final = 1024 * 1024


def read_shipped(path: str) -> str:
    """The text of a file of config/, such as `prometheus/alerts.yml`. A wheel has it in this package, a checkout beside
    `app`.
    """
    if has_package_file(__package__, "config", path):
        return read_package_file(__package__, "config", path).decode()
    return read_regular(Path(__file__).parents[4] / "config" / path, _MOST_BYTES).decode()
