"""The headers of an answer that depend on its coding."""

from __future__ import annotations

from typing import Final

from app.web.header import Header

_VARY: Final = b"vary"
_ETAG: Final = b"etag"


def vary_by_encoding(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """The headers with Accept-Encoding in `Vary`, as one header: older caches read only one of several lines."""
    given = dict(headers).get(_VARY)
    value = b"Accept-Encoding" if given is None else given + b", Accept-Encoding"
    return (*(header for header in headers if header[0] != _VARY), (_VARY, value))


def find_tag(headers: tuple[Header, ...]) -> bytes | None:
    """The ETag among the headers, with its quotes."""
    return dict(headers).get(_ETAG)


def weaken_tag(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """The headers with their ETag as a weak one (RFC 9110, section 8.8.1)."""
    return tuple((name, b"W/" + value) if name == _ETAG else (name, value) for name, value in headers)
