"""What a load generator requests: one path, or lists of paths with the headers of a program or of a browser."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from bench.names import HOT, MAX_NAMES, path_of, synthetic, zipf

#: Requests in a list that is repeated.
_REQUESTS: Final = 200_000
_SEED: Final = 11
#: The headers of a Firefox that follows a link of a page.
BROWSER: Final = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language: en-US,en;q=0.5",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Referer: https://search.example.org/",
    "Connection: keep-alive",
    "Upgrade-Insecure-Requests: 1",
    "Sec-Fetch-Dest: document",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Site: cross-site",
    "Priority: u=0, i",
)


@dataclass(frozen=True, slots=True)
class Names:
    """A list of `count` names: the n-th in proportion to 1/n**exponent. One of `one_new_in` is in no cache."""

    count: int
    exponent: float = 1.0
    one_new_in: int = 0
    #: Whether each name is requested once before the first round, which fills the caches.
    warm: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """Requests for one path, or for names in turn. `clients` is the number of different values of X-Forwarded-For."""

    title: str
    path: str = path_of(HOT)
    names: Names | None = None
    headers: tuple[str, ...] = ()
    clients: int = 0
    status: int = 302

    @property
    def is_hot(self) -> bool:
        """Whether all requests are for one path."""
        return self.names is None


def write_list(load: Load, names: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Write the list for load.lua, one path and one client a line. Returns its argument; none if there is no list."""
    if load.clients:
        lines = [f"{load.path}\t198.18.{number // 250}.{number % 250 + 1}" for number in range(load.clients)]
    elif load.names is not None:
        lines = _paths(load.names, names)
    else:
        return ()
    file = folder / f"paths-{crc32(repr(load).encode()):08x}.txt"
    file.write_text("\n".join(lines) + "\n", encoding="ascii")
    return (str(file),)


def names_of(names: Names, given: Sequence[str]) -> Sequence[str]:
    """The names of a list: the first of `given`, or generated ones if there are not as many."""
    return given[: names.count] if names.count <= min(len(given), MAX_NAMES) else synthetic(names.count)


def _paths(names: Names, given: Sequence[str]) -> list[str]:
    chosen = names_of(names, given)
    if names.exponent:
        drawn = zipf(chosen, _REQUESTS, names.exponent)
    else:
        drawn = random.Random(_SEED).sample(list(chosen), min(_REQUESTS, len(chosen)))
    paths = [path_of(name) for name in drawn]
    return ["*" if names.one_new_in and number % names.one_new_in == 0 else path for number, path in enumerate(paths)]
