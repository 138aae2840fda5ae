"""Answers of the upstream's "Which RA?" service (DOI Handbook): which agency registered a name or prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from doi_names.name import fold
from doi_proxy.errors import InvalidAnswer


class _Row(msgspec.Struct, gc=False):
    DOI: str
    RA: str | None = None
    status: str | None = None


_decoder: Final = msgspec.json.Decoder(list[_Row])


def read_agencies(body: bytes, names: Sequence[str]) -> list[dict[str, str]]:
    """One row for each queried name, in order: `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`.

    Raises InvalidAnswer for everything else, also for rows about other names.
    """
    try:
        rows = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidAnswer("The upstream's answer is not JSON of the Which RA service.", detail=str(error)) from error
    if [fold(row.DOI) for row in rows] != [fold(name) for name in names]:
        raise InvalidAnswer("The upstream's Which RA service answered about other names than the queried ones.")
    return [_read(row) for row in rows]


def _read(row: _Row) -> dict[str, str]:
    if row.RA:
        return {"DOI": row.DOI, "RA": row.RA}
    if row.status:
        return {"DOI": row.DOI, "status": row.status}
    raise InvalidAnswer("The upstream's answer has neither a registration agency nor a status.")
