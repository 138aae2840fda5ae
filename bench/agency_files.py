"""Data files in the formats of Crossref and DataCite: JSON Lines, compressed, 5,000 records a file."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.registry_names import RegistryNames, url_of
from tests.features.registry.samples import crossref_work, datacite_record

_FILE_RECORDS: Final = 5_000
_PROCESSES: Final = 2
#: In place of the name and the URL, in the text of a sample.
_DOI: Final = "10.5555/THE-NAME"
_URL: Final = "https://example.org/the-url"
#: The samples of the tests, by agency. They have every documented field, and the length of usual records.
SAMPLES: Final[dict[str, Callable[[str, str], dict[str, Any]]]] = {
    "Crossref": crossref_work,
    "DataCite": datacite_record,
}


def write_agency_files(folder: Path, agency: str, names: RegistryNames) -> int:
    """Write files with the records of all names. Returns the mean length of a record, in bytes."""
    folder.mkdir()
    sample = json.dumps(SAMPLES[agency](_DOI, _URL)) + "\n"
    with ProcessPoolExecutor(_PROCESSES) as pool:
        sizes = pool.map(partial(_write_file, folder, sample, names), range(0, names.records, _FILE_RECORDS))
        return sum(sizes) // names.records


def _write_file(folder: Path, sample: str, names: RegistryNames, start: int) -> int:
    keys = map(names.name, range(start, min(start + _FILE_RECORDS, names.records)))
    lines = (sample.replace(_DOI, _escape(key.lower())).replace(_URL, _escape(url_of(key))) for key in keys)
    text = "".join(lines).encode()
    (folder / f"{start:010}.jsonl.gz").write_bytes(gzip.compress(text, 6, mtime=int(time.time())))
    return len(text)


def _escape(text: str) -> str:
    return json.dumps(text)[1:-1]
