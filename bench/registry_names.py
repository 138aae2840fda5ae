"""Registry records of any number with the shapes of real ones: names made from a list of names, and their URLs.

A name of the list gives a stem, and each stem gives as many names, one after the other. So the names of a range of
numbers are known without the others, and they come in the order of their keys, as after an importer's sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import digits
from typing import Final
from zlib import crc32

from doi_names.name import fold
from doi_proxy.features.registry.json_values import RegistryRow

#: 2026-01-01, in seconds since the epoch.
_DATE: Final = 1_767_225_600
#: The shapes of URLs; each is as common as the others. In a collection of 6,089 published pairs of a DOI name and its
#: URL, 52 % of the URLs contain the name. Their mean length is 60 bytes, and 26 bytes compressed.
_SHAPES: Final = (
    "http://link.springer.com/{doi}",
    "https://link.springer.com/{doi}",
    "https://onlinelibrary.wiley.com/doi/{doi}",
    "http://doi.wiley.com/{doi}",
    "https://www.tandfonline.com/doi/full/{doi}",
    "https://dx.plos.org/{doi}",
    "http://journal{host}.example.org/doi/abs/{doi}",
    "https://www.press{host}.example.com/content/{doi}",
    "https://linkinghub.elsevier.com/retrieve/pii/S{number:016}",
    "http://linkinghub.elsevier.com/retrieve/pii/S{number:016}",
    "http://ieeexplore.ieee.org/document/{number:08}/",
    "https://zenodo.org/record/{number:07}",
    "http://www.society{host}.example.org/article.asp?issn={host}-0037;year=2019;volume=12;spage={number:03}",
    "https://revista{host}.example.br/index.php/rev/article/view/{number:05}",
    "https://repository.university{host}.example.edu/handle/1{host}/{number:06}",
    "http://www.archive{host}.example.net/records/{number:09}.html",
)


class RegistryNames:
    """The records of `records` names, by their number."""

    def __init__(self, names: Sequence[str], records: int) -> None:
        # Without its last digits, a name leaves room for those that follow.
        self._stems = sorted({fold(name).rstrip(digits) for name in names})
        #: Names that have the same stem.
        self.each = -(-records // len(self._stems))
        self._width = len(str(self.each))
        self.records = records

    def name(self, number: int) -> str:
        """The name of a number, in its canonical form."""
        stem, place = divmod(number, self.each)
        return f"{self._stems[stem]}{place:0{self._width}}"

    def row(self, name: str) -> RegistryRow:
        """The record of a name in its canonical form."""
        return name, _DATE + crc32(name.encode()) % 10_000_000, "Crossref", url_of(name)


def url_of(name: str) -> str:
    """The URL of a name in its canonical form."""
    stem_hash, number = crc32(name[:12].encode()), crc32(name.encode())
    shape = _SHAPES[crc32(name[:-4].encode()) % len(_SHAPES)]
    return shape.format(doi=name.lower(), number=number, host=f"{stem_hash % 10_000:04}")
