"""The files of local records: how many records they can have, and what is wrong between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from doi_proxy.features.local_records.file_text import read_records
from doi_proxy.features.local_records.records import LocalRecord, LocalRecords, find_conflicts, find_expired
from doi_proxy.store.kept_file import FileKind
from doi_proxy.system.toml_text import FileProblem

#: Records are for what one institution corrects or adds. More of them slow down each start and reload: 100,000 take
#: three seconds of processor time, and 90 MB in the process. Registry files have room for all DOI names.
MAX_RECORDS: Final = 200_000
_ADVICE: Final = "remove some, or import the targets of many names as a registry file: docs/registry-files.md"


def record_files(
    clock: Callable[[], float], most_records: int = MAX_RECORDS, most_bytes: int = 64 * 1024 * 1024
) -> FileKind[LocalRecords]:
    """The files of `local_records`. `clock` is in seconds since the epoch.

    All files together have at most `most_bytes`: 335 for each record.
    """

    def parse(texts: Mapping[str, str]) -> tuple[LocalRecords, Iterable[FileProblem]]:
        records, problems = list[LocalRecord](), list[FileProblem]()
        for file, text in texts.items():
            for item in read_records(text, file):
                if isinstance(item, FileProblem):
                    problems.append(item)
                else:
                    records.append(item)
                if len(problems) >= 1_000 or len(records) > most_records:
                    break
        if len(records) > most_records:
            problems.append(records[-1].problem(f"there are more than {most_records} records; {_ADVICE}"))
        if not problems:
            problems = [*find_conflicts(records), *find_expired(records, clock())]
        return LocalRecords(records), problems

    return FileKind("local_records", "local-records.toml", parse, most_bytes, _ADVICE, (".toml", ".ndjson"))
