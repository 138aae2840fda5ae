"""The name in a text of a list or a form, and the rules that were applied to read it."""

from __future__ import annotations

import re
from typing import Final

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.presentation import BLANKS, strip_typed_form
from doi_names.repair.prefix import SITE_PAGES

#: Expands the short form of a shortDOI in a URL: https://doi.org/abcde is 10/abcde (shortDOI service).
SHORT_DOI_RULE: Final = "short-doi"

#: Forms that mark a handle, such as "hdl:".
_HANDLE_LABEL: Final = re.compile(
    r"(?:doi:\s{0,9})?(?:hdl:|(?:info|urn):hdl[/:]|https?:/{1,9}hdl\.handle\.net/)", re.IGNORECASE | re.ASCII
)
_SITE_PAGE: Final = re.compile(SITE_PAGES, re.IGNORECASE)


def read_typed_name(text: str) -> HandleName:
    """The name in a text. Raises InvalidName."""
    return read_with_rules(text)[0]


def is_name(text: str) -> bool:
    """Whether a text is a DOI name or a shortDOI."""
    try:
        name = read_typed_name(text)
    except InvalidName:
        return False
    return name.is_doi or name.is_short_doi


def read_with_rules(text: str) -> tuple[HandleName, tuple[str, ...]]:
    """The name in a text, and the rules that were applied to read it. Raises InvalidName."""
    bare = strip_typed_form(text)
    name = HandleName(bare.text)
    if "url" not in bare.rules or is_marked_handle(text) or _SITE_PAGE.fullmatch(name.text):
        return name, bare.rules
    if expanded := name.expand_short_doi():
        return expanded, (*bare.rules, SHORT_DOI_RULE)
    return name, bare.rules


def is_marked_handle(text: str) -> bool:
    """Whether a text says itself that it is a handle, as "hdl:" does."""
    return _HANDLE_LABEL.match(text.lstrip(BLANKS)) is not None
