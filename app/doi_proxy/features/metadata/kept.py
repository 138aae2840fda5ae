"""Works in a note of the store: a line for each, with its key, when it was fetched, its year, author and title."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from doi_proxy.features.metadata.csl import Work

#: Works in the note, and bytes of it. A work takes about 150 bytes.
_MAX_WORKS: Final = 4_096
_MAX_BYTES: Final = 1024 * 1024


class KeptWork(NamedTuple):
    """A work, and when it was fetched, in seconds since the epoch."""

    fetched_at: float
    work: Work


def read_works(note: bytes | None) -> Iterator[tuple[str, KeptWork]]:
    """The works of a note by key, the newest first. A line of another form is left out."""
    for line in islice((note or b"").split(b"\n", _MAX_WORKS), _MAX_WORKS):
        try:
            key, fetched_at, year, author, title = line.decode().split("\t")
            yield key, KeptWork(float(fetched_at), Work(title, author, int(year) if year else None))
        except ValueError:
            continue


def write_works(works: Mapping[str, KeptWork], before: bytes | None, is_usable: Callable[[str, float], bool]) -> bytes:
    """The note with these works and those that it had, as far as they are usable. The oldest are left out."""
    merged = {**dict(read_works(before)), **works}
    newest = sorted(merged.items(), key=lambda item: item[1].fetched_at, reverse=True)
    lines: list[bytes] = []
    room = _MAX_BYTES
    for key, (fetched_at, work) in newest:
        line = "\t".join((key, repr(fetched_at), str(work.year or ""), work.author, work.title)).encode()
        room -= len(line) + 1
        if room < 0 or len(lines) >= _MAX_WORKS:
            break
        if is_usable(key, fetched_at):
            lines.append(line)
    return b"\n".join(lines)
