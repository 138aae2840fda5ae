"""Percent-encoding over UTF-8 (RFC 3986, section 2.1): strict decoding, and upper-case encoding."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from doi_names.errors import MalformedEscape, NotUTF8

_MALFORMED: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
#: Text of unreserved characters alone (RFC 3986, section 2.3), which has nothing to encode.
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9._~-]*")


def decode(raw: bytes | str) -> str:
    """Decode every escape once; "+" stays "+". Raises MalformedEscape and NotUTF8, each with the character's place."""
    # A lone surrogate becomes bytes that are not UTF-8, which are refused below.
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    if b"%" in data:
        if broken := _MALFORMED.search(data):
            raise _malformed(data, broken.start())
        data = unquote_to_bytes(data)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = len(data[: error.start].decode("utf-8")) + 1
        raise NotUTF8(f"The byte 0x{data[error.start]:02X} at character {place} is not UTF-8.") from error


def encode(text: str, literal: bytes | frozenset[int] = b"") -> str:
    """Encode the UTF-8 bytes of `text` except the unreserved characters (RFC 3986, section 2.3) and `literal`.

    `literal` holds ASCII bytes. Raises NotUTF8 for a lone surrogate.
    """
    if _UNRESERVED.fullmatch(text):
        return text
    try:
        # `urllib.parse.quote` reads `literal` anew in each call, and a page needs ten calls.
        return text.encode().decode("latin-1").translate(_list_escapes(literal))
    except UnicodeEncodeError as error:
        raise NotUTF8(f"The surrogate at character {error.start + 1} cannot be written in UTF-8.") from error


@lru_cache(maxsize=16)
def _list_escapes(literal: bytes | frozenset[int]) -> tuple[str, ...]:
    return tuple(chr(i) if i in literal or _UNRESERVED.fullmatch(chr(i)) else f"%{i:02X}" for i in range(256))


def _malformed(data: bytes, start: int) -> MalformedEscape:
    place = len(data[:start].decode("utf-8", "replace")) + 1
    return MalformedEscape(
        f'The "%" at character {place} is not followed by two hexadecimal digits; write a literal "%" as "%25".'
    )
