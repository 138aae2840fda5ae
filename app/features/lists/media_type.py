"""The media type of a list (RFC 9110, section 8.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.errors import UnsupportedBody
from app.web.media_types import CSV, NDJSON, media_type_of

#: Other names of the same formats.
_OTHER_NAMES: Final = {
    "application/ndjson": NDJSON,
    "application/jsonl": NDJSON,
    "application/x-jsonlines": NDJSON,
    "text/tab-separated-values": CSV,
}
#: "" is a body without a charset. US-ASCII is a part of UTF-8.
_CHARSETS: Final = frozenset({"", "utf-8", "utf8", "us-ascii"})
_MAX_SHOWN_CHARACTERS: Final = 80


def read_content_type(content_type: str | None, supported: Iterable[str]) -> str:
    """The media type of a body, which is one of `supported`, by its usual name.

    Raises UnsupportedBody for any other media type, and for a charset other than UTF-8.
    """
    types, sent = tuple(supported), media_type_of(content_type)
    media_type = _OTHER_NAMES.get(sent, sent)
    if media_type not in types:
        shown = sent[:_MAX_SHOWN_CHARACTERS] or "without a media type"
        raise UnsupportedBody(f"The body is {shown}; send it as {', '.join(types[:-1])} or {types[-1]}.")
    charset = (content_type or "").lower().partition("charset=")[2].partition(";")[0].strip(' "')
    if charset not in _CHARSETS:
        raise UnsupportedBody(f"The body is in the encoding {charset[:_MAX_SHOWN_CHARACTERS]}; send it in UTF-8.")
    return media_type
