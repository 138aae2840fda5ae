"""The files of config/ that `doi-proxy setup` copies."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def read_shipped(path: str) -> str:
    """The text of a file of config/, such as `prometheus/alerts.yml`. A wheel has it in this package, a checkout beside
    `app`.
    """
    packaged = files(__package__).joinpath("config", path)
    checkout = Path(__file__).parents[4] / "config" / path
    return (packaged if packaged.is_file() else checkout).read_text("utf-8")
