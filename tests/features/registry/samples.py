"""Records in the shapes of the agencies' data files, with every field that their documentation names.

The texts are ours. Their lengths are those of usual records: about 6.5 kB for Crossref, 4 kB for DataCite.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_ABSTRACT = (
    "We describe a method to count the leaves of a tree, compare it with three older ones, and discuss what it means "
    "for the forests of the north. The data and the program are available from the repository. "
)


def _moment(seconds: int) -> dict[str, Any]:
    return {"date-parts": [[2024, 7, 1]], "date-time": "2024-07-01T00:00:00Z", "timestamp": seconds * 1000}


def crossref_work(doi: str, url: str | None, *, indexed: int = 1_719_792_000, references: int = 12) -> dict[str, Any]:
    """A work as in the public data file of Crossref (REST API, "works")."""
    reference = {
        "key": "10.5555/sample_ref24",
        "doi-asserted-by": "publisher",
        "DOI": "10.5555/24242424",
        "article-title": "Notes on the growth of leaves in the shade of others",
        "author": "Sample",
        "volume": "12",
        "first-page": "101",
        "year": "2011",
        "journal-title": "Annals of Samples",
    }
    work: dict[str, Any] = {
        "indexed": {**_moment(indexed), "version": "3.39.0"},
        "reference-count": references,
        "publisher": "Sample Press",
        "issue": "1",
        "license": [
            {"start": _moment(indexed), "content-version": "vor", "delay-in-days": 0, "URL": "https://e.org/l"}
        ],
        "funder": [{"name": "Sample Foundation", "DOI": "10.13039/100000001", "award": ["A-1"]}],
        "content-domain": {"domain": ["example.org"], "crossmark-restriction": False},
        "short-container-title": ["Ann. Samp."],
        "published-print": {"date-parts": [[2024, 7]]},
        "abstract": f"<jats:p>{_ABSTRACT * 2}</jats:p>",
        "DOI": doi,
        "type": "journal-article",
        "created": _moment(1_400_000_000),
        "page": "1-12",
        "source": "Crossref",
        "is-referenced-by-count": 3,
        "title": ["A method to count the leaves of a tree, and its limits"],
        "prefix": doi.partition("/")[0],
        "volume": "7",
        "author": [
            {
                "ORCID": "https://orcid.org/0000-0002-1825-0097",
                "given": "Josiah",
                "family": "Carberry",
                "sequence": "first",
                "affiliation": [{"name": "Department of Samples, University of Examples, Example City"}],
            }
        ]
        * 4,
        "member": "78",
        "reference": [reference] * references,
        "container-title": ["Annals of Samples"],
        "language": "en",
        "link": [{"URL": "https://example.org/a.pdf", "content-type": "application/pdf", "content-version": "vor"}],
        "deposited": _moment(1_700_000_000),
        "score": 1,
        "resource": {"primary": {"URL": url}},
        "subtitle": [],
        "issued": {"date-parts": [[2024, 7]]},
        "references-count": references,
        "journal-issue": {"issue": "1", "published-print": {"date-parts": [[2024, 7]]}},
        "alternative-id": ["S1"],
        "URL": f"https://doi.org/{doi}",
        "relation": {},
        "ISSN": ["0000-0019"],
        "issn-type": [{"value": "0000-0019", "type": "print"}],
        "subject": [],
        "published": {"date-parts": [[2024, 7]]},
    }
    if url is None:
        del work["resource"]
    return work


def datacite_record(
    doi: str, url: str | None, *, state: str = "findable", updated: str | None = "2024-07-01T00:00:00.000Z"
) -> dict[str, Any]:
    """A record as in the public data file of DataCite ("DataCite Public Data File")."""
    creator = {
        "name": "Carberry, Josiah",
        "nameType": "Personal",
        "givenName": "Josiah",
        "familyName": "Carberry",
        "affiliation": [{"name": "University of Examples", "schemeUri": "https://ror.org"}],
        "nameIdentifiers": [
            {"schemeUri": "https://orcid.org", "nameIdentifier": "https://orcid.org/0000-0002-1825-0097"}
        ],
    }
    related = {"relationType": "IsCitedBy", "relatedIdentifier": "10.5555/24242424", "relatedIdentifierType": "DOI"}
    attributes = {
        "doi": doi,
        "identifiers": [{"identifier": "oai:example.org:1", "identifierType": "oai"}],
        "creators": [creator] * 4,
        "titles": [{"title": "The leaves of a tree: measurements of ten years", "lang": "en"}],
        "publisher": {"name": "Sample Repository"},
        "container": {},
        "publicationYear": 2024,
        "subjects": [{"subject": "trees", "subjectScheme": "samples"}] * 6,
        "contributors": [creator],
        "dates": [{"date": "2024-07-01", "dateType": "Issued"}],
        "language": "en",
        "types": {"ris": "DATA", "bibtex": "misc", "resourceType": "Dataset", "resourceTypeGeneral": "Dataset"},
        "relatedIdentifiers": [related] * 4,
        "sizes": ["12 kB"],
        "formats": ["text/csv"],
        "version": "1",
        "rightsList": [
            {"rights": "Creative Commons Zero", "rightsUri": "https://creativecommons.org/publicdomain/zero/1.0"}
        ],
        "descriptions": [{"description": _ABSTRACT * 2, "descriptionType": "Abstract"}],
        "geoLocations": [],
        "fundingReferences": [],
        "url": url,
        "contentUrl": None,
        "metadataVersion": 1,
        "schemaVersion": "http://datacite.org/schema/kernel-4",
        "source": "api",
        "isActive": True,
        "state": state,
        "reason": None,
        "created": "2024-07-01T00:00:00.000Z",
        "registered": "2024-07-01T00:00:00.000Z",
        "updated": updated,
    }
    client = {"data": {"id": "sample.repo", "type": "clients"}}
    return {
        "id": doi,
        "type": "dois",
        "attributes": attributes,
        "relationships": {"client": client, "provider": client},
    }


def json_lines(records: Iterable[object]) -> bytes:
    """Records, one on each line."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def tar(members: Mapping[str, bytes], *, form: int = tarfile.PAX_FORMAT, mtime: int = 1_720_000_000) -> bytes:
    """A tar archive of files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), mtime
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def crossref_file(names: Iterable[tuple[str, str]]) -> bytes:
    """A file of the public data file of Crossref: a document on one line, compressed."""
    return gzip.compress(json.dumps({"items": [crossref_work(*name) for name in names]}).encode(), 1)


def datacite_file(names: Iterable[tuple[str, str]]) -> bytes:
    """A part of the public data file of DataCite: lines, compressed."""
    return gzip.compress(json_lines(datacite_record(*name) for name in names), 1)


def write(path: Path, data: bytes) -> Path:
    """A file with this data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
