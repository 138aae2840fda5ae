"""The names to request: from a file or generated, in an order like that of real requests."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Final

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.presentation import url_path

MAX_NAMES: Final = 100_000
#: The lines of a file that are read.
_MAX_LINES: Final = 10 * MAX_NAMES
_MAX_NAME: Final = 500
#: The name of the one hot record.
HOT: Final = "10.1000/182"
_SEED: Final = 5


def synthetic(count: int) -> list[str]:
    """Generated names of usual shape and length."""
    return [f"10.{1000 + number % 9000}/journal.{number % 97}.article.{number:07d}" for number in range(count)]


def read_names(path: Path, most: int = MAX_NAMES) -> list[str]:
    """The DOI names of a file, one a line, also gzip. Repeated names, and lines that are not DOI names, are skipped."""
    found: dict[str, str] = {}
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in islice(lines, _MAX_LINES):
            text = line.rstrip("\r\n")
            try:
                name = HandleName(text)
            except InvalidName:
                continue
            if name.is_doi and len(text) <= _MAX_NAME:
                found.setdefault(name.key, text)
            if len(found) == most:
                break
    return list(found.values())


def path_of(name: str) -> str:
    """The path of the name at a resolver."""
    return "/" + url_path(name)


def zipf(names: Sequence[str], count: int, exponent: float = 1.0, seed: int = _SEED) -> list[str]:
    """`count` names, the n-th in proportion to 1/n**exponent. The same seed gives the same names."""
    chance = random.Random(seed)
    ranked = list(names)
    chance.shuffle(ranked)
    weights = list(accumulate(1 / rank**exponent for rank in range(1, len(ranked) + 1)))
    return chance.choices(ranked, cum_weights=weights, k=count)
