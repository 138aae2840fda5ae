"""The QR code on the page of a record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cachetools import LRUCache

from app.doi.name import HandleName
from app.doi.uri import to_url
from app.resolver.demand import Demand
from app.web.section import PageKind

if TYPE_CHECKING:
    from app.features.qr.drawing import QRCode

#: Characters of an address with a code. It has 57 modules a side then, and takes 2 ms of processor time.
MAX_CHARACTERS: Final = 200
#: Codes in memory, up to 15 KB each.
_MAX_CODES: Final = 256


class QRSection:
    """See Section."""

    template = "qr.html"

    def __init__(self) -> None:
        self._draw: Callable[[str], QRCode] | None = None
        self._codes: LRUCache[str, QRCode] = LRUCache(_MAX_CODES)

    async def prepare(self, name: HandleName, client: str | None) -> None:
        """Nothing: a name that is not registered has no code."""

    async def prepare_record(self, name: HandleName, demand: Demand) -> None:
        """Draw the code of a DOI name."""
        url = _find_address(name)
        if url is None or url in self._codes:
            return
        if self._draw is None:
            self._draw = await asyncio.to_thread(_import_draw)
        self._codes[url] = self._draw(url)

    def find_in_text(self, text: str) -> Sequence[HandleName]:
        """Find nothing."""
        return ()

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The code, if it has been drawn."""
        url = None if kind != "values" or name is None else _find_address(name)
        code = None if url is None else self._codes.get(url)
        return {} if code is None else {"qr": code}

    def list_watched(self, name: HandleName) -> Sequence[HandleName]:
        """No other names."""
        return ()


def _find_address(name: HandleName) -> str | None:
    """The address at doi.org, percent-encoded. None for a longer one, and for what is not a DOI name."""
    url = to_url(name) if name.is_doi else ""
    return url if 0 < len(url) <= MAX_CHARACTERS else None


def _import_draw() -> Callable[[str], QRCode]:
    """The import takes 40 ms of processor time, in a thread that gives way to requests."""
    from app.features.qr.drawing import draw  # noqa: PLC0415

    return draw
