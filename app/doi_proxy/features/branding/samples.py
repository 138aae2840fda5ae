"""A sample of every page of the core. It finds the errors of custom templates before they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from doi_names.name import HandleName
from doi_proxy.web.outline import Outline, rows
from doi_proxy.web.pages import PageLink
from doi_proxy.web.shown_name import show_name
from doi_proxy.web.ways import Way
from handle_protocol.record import read_values

_NAME: Final = show_name(HandleName("10.1000/182"))
_WAYS: Final = (Way(Markup("Ask:"), (Markup("us"),)),)
_ABOUT: Final = {"agency": "Crossref", "checked": "1 March 2026", "count": 2, "is_set_here": True}
_RECORD: Final = (
    b'[{"index":1,"type":"URL","data":{"format":"string","value":"https://example.org/"},"ttl":1},'
    b'{"index":100,"type":"HS_ADMIN","data":{"format":"admin","value":{"handle":"0.NA/10","index":1,'
    b'"permissions":"111111111111"}},"ttl":1}]'
)


def sample_facts() -> dict[str, Mapping[str, Any]]:
    """The facts of each page by template, as `Pages` passes them."""
    shown = rows(read_values(_RECORD).values)
    tables = [("ordinary", shown[:1]), ("administrative", shown[1:])]
    values: dict[str, Any] = {
        "first_blocks": (),
        "blocks": (),
        "tables": tables,
        "hidden": 1,
        "outline": Outline(),
        "stale": None,
    }
    not_found: dict[str, Any] = {"without_slash": _NAME, "blocks": (), "questionable": ()}
    could_not_verify: dict[str, Any] = {"reason": "A reason.", "wait": ("retry_soon", 1), "ways": _WAYS}
    return {
        "home": {"address": "https://doi.example.org"},
        "values": {**values, "note": None, "leads_on": True, "leads_to": "https://example.org/", **_ABOUT},
        "not_found": {**not_found, "agency": "Crossref", "ways": _WAYS},
        "not_a_doi": {"typed": "x", "reason": "A reason.", "handle_url": None, "blocks": ()},
        "found": {"typed": "x"},
        "found_several": {"names": [_NAME, _NAME], "typed": "x"},
        "openurl": {},
        "locations": {"locations": (), "hidden": 0, "malformed": ()},
        "which_ra": {"rows": [("10.1000/182", None, "Crossref", None)], "typed": "", "count": 100, "given": None},
        "could_not_verify": could_not_verify,
        "alias_chain_too_long": {"reached": _NAME},
        "prefix_inactive": {"message": "A message.", "contact": None, "ways": _WAYS},
        "prefix_denied": {"reason": "A reason.", "ways": _WAYS},
        "gone": {"reason": "A reason.", "date": "1 March 2026", "ways": _WAYS},
        "error": {"reason": "A reason.", "text": "error.no_reason", "wait": ("retry_soon", 1)},
    }


def sample_context(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a page, and those that all pages have."""
    return {
        "base": "",
        "query": "",
        "indexed": False,
        "links": [PageLink("footer", "/", "home.title")],
        "title": "Title",
        "heading": "Heading",
        "name": _NAME,
        **facts,
    }
