"""`/doiRA/<DOI>[,<DOI>…]` and `/ra/<DOI or prefix>[,…]`: which agency registered a name (DOI Handbook, chapter 3)."""

from __future__ import annotations

from typing import Final

import msgspec

from app.doi.name import HandleName
from app.doi.percent import decode
from app.doi.presentation import read
from app.errors import InvalidName
from app.resolver.which_ra import WhichRa
from app.web.freshness import AGENCIES, NO_STORE
from app.web.responses import JSON, Reply

#: Names in one request.
MAX_NAMES: Final = 100


async def answer(which_ra: WhichRa, raw: bytes, client: str) -> Reply:
    """A JSON array with a row for each name, always 200; a comma inside a name must be written `%2C`.

    Upstream questions are charged to `client`.
    """
    parts = raw.split(b",")
    if len(parts) > MAX_NAMES:
        message = f"At most {MAX_NAMES} names are answered at once; these are {len(parts)}."
        return Reply(400, (JSON,), msgspec.json.encode({"message": message}), (NO_STORE,))
    rows = await which_ra.rows([_named(part) for part in parts], client)
    verified = all("RA" in row or row["status"] == "Invalid DOI" for row in rows)
    body = msgspec.json.format(msgspec.json.encode(rows), indent=2)
    return Reply(200, (JSON,), body, (AGENCIES if verified else NO_STORE,))


def _named(raw: bytes) -> tuple[str, HandleName | None]:
    try:
        text = decode(raw)
    except InvalidName:
        return raw.decode("latin-1"), None
    try:
        return text, read(text)
    except InvalidName:
        return text, None
