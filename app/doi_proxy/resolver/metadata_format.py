"""Metadata formats by their short names, and the addresses that deliver a format without an `Accept` header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

#: The media type of each format. The agencies publish which ones they offer: all have BibTeX, RIS and CSL JSON.
MEDIA_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bibtex": "application/x-bibtex",
        "ris": "application/x-research-info-systems",
        "csl": "application/vnd.citationstyles.csl+json",
        "csl-json": "application/vnd.citationstyles.csl+json",
        "text": "text/x-bibliography",
        "turtle": "text/turtle",
        "rdf": "application/rdf+xml",
        "jsonld": "application/vnd.schemaorg.ld+json",
        "schemaorg": "application/vnd.schemaorg.ld+json",
        "codemeta": "application/vnd.codemeta.ld+json",
        "crossref": "application/vnd.crossref.unixsd+xml",
        "unixref": "application/vnd.crossref.unixref+xml",
        "datacite": "application/vnd.datacite.datacite+xml",
        "datacite-json": "application/vnd.datacite.datacite+json",
        "jats": "application/vnd.jats+xml",
    }
)
#: Crossref's address of the metadata of a work. The media type may follow.
_CROSSREF: Final = re.compile(r"https?://api\.crossref\.org/(?:v1/)?works/[^?#]+/transform", re.IGNORECASE)
#: DataCite's. The media type may precede the name.
_DATACITE: Final = re.compile(r"(https?://data\.(?:datacite|crosscite)\.org)(/10\.[^?#]+)", re.IGNORECASE)


def name_media_type(url: str, media_type: str) -> str:
    """The address of metadata with the media type in its path, where the agency has such addresses.

    A redirect cannot send an `Accept` for the client. Any other address stays as it is.
    """
    if _CROSSREF.fullmatch(url):
        return f"{url}/{media_type}"
    datacite = _DATACITE.fullmatch(url)
    return url if datacite is None else f"{datacite[1]}/{media_type}{datacite[2]}"
