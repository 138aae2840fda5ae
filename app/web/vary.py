"""Which clients an answer is for: `Vary` and the first word of `Cache-Control`, from the facts that chose it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from app.resolver.asked import ClientFact
from app.web.responses import Header

#: Facts that a client sends as a header. Address and country cannot be named in Vary, and chance is in no header.
_HEADERS: Final = {ClientFact.LANGUAGE: "Accept-Language", ClientFact.USER_AGENT: "User-Agent"}
#: On every redirect: whether the prefix negotiates is not known before a client asks for another type.
VARY_ACCEPT: Final = (b"vary", b"Accept")


@lru_cache(maxsize=256)
def vary(facts: ClientFact, *, is_page: bool = False) -> Header:
    """`Vary` of an answer that `facts` decided (RFC 9110, section 12.5.5); the words of a page depend on a language."""
    used = facts | ClientFact.LANGUAGE if is_page else facts
    return b"vary", ", ".join(["Accept", *(name for fact, name in _HEADERS.items() if fact in used)]).encode()


def cache_control(facts: ClientFact, max_age: float) -> Header:
    """`Cache-Control`: only an answer that is the same for every client may be shared (RFC 9111, section 5.2.2.7).

    `private` and `max-age` count before Expires (section 5.3), which ends with the record as at the DOI proxy.
    """
    scope = "private" if facts else "public"
    return b"cache-control", f"{scope}, max-age={int(max_age)}".encode()
