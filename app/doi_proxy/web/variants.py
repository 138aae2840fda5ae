"""Which of the answers to one target a request gets: what its Accept, Accept-Language and Accept-Encoding select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Flag, auto
from functools import lru_cache
from typing import Final

import msgspec

from doi_proxy.web.languages import choose_language
from doi_proxy.web.negotiation import choose_coding, wants_data, wants_page, wants_problem

#: The headers that select, and the longest of each that does.
SELECTING: Final = (b"accept", b"accept-language", b"accept-encoding")
MAX_SELECTING_CHARACTERS: Final = 1_000


class Varies(Flag):
    """What an answer depends on besides its target and its records."""

    DATA = auto()  # whether Accept is negotiated
    PAGE = auto()  # whether Accept is that of a browser
    PROBLEM = auto()  # whether Accept prefers JSON to a page
    LANGUAGE = auto()
    CODING = auto()


#: The answer is the same for every Accept, Accept-Language and Accept-Encoding.
SAME_FOR_ALL: Final = Varies(0)


class Variant(msgspec.Struct, frozen=True, gc=False):
    """What a request selects. In the variant that an answer is for, None is what does not matter."""

    wants_data: bool | None = None
    wants_page: bool | None = None
    wants_problem: bool | None = None
    language: str | None = None
    coding: str | None = None

    def admits(self, selected: Variant) -> bool:
        """Whether an answer for this variant is for a request that selects `selected`."""
        return (
            (self.wants_data is None or self.wants_data == selected.wants_data)
            and (self.wants_page is None or self.wants_page == selected.wants_page)
            and (self.wants_problem is None or self.wants_problem == selected.wants_problem)
            and (self.language is None or self.language == selected.language)
            and (self.coding is None or self.coding == selected.coding)
        )


def select_variant(header: Callable[[bytes], str | None], languages: Sequence[str]) -> Variant | None:
    """What a request selects, given its headers. None if one of them is too long to be part of a key."""
    accept, accept_language, accept_encoding = map(header, SELECTING)
    for value in (accept, accept_language, accept_encoding):
        if value is not None and len(value) > MAX_SELECTING_CHARACTERS:
            return None
    return _select(accept, accept_language, accept_encoding, tuple(languages))


@lru_cache(maxsize=1024)
def _select(
    accept: str | None, accept_language: str | None, accept_encoding: str | None, languages: tuple[str, ...]
) -> Variant:
    return Variant(
        wants_data(accept),
        wants_page(accept),
        wants_problem(accept),
        choose_language(accept_language, languages),
        choose_coding(accept_encoding) or "",
    )


@lru_cache(maxsize=1024)
def narrow(selected: Variant, varies: Varies) -> Variant:
    """The variant of an answer that depends on `varies` alone, for a request that selects `selected`."""
    return Variant(
        selected.wants_data if Varies.DATA in varies else None,
        selected.wants_page if Varies.PAGE in varies else None,
        selected.wants_problem if Varies.PROBLEM in varies else None,
        selected.language if Varies.LANGUAGE in varies else None,
        selected.coding if Varies.CODING in varies else None,
    )
