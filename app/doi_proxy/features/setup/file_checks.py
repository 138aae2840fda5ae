"""Checks of the files that settings name: readable by this user, and with content that the proxy accepts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from doi_proxy.store.url import find_store_file
from doi_proxy.system.check import Finding, Inspection, find_access_problem
from doi_proxy.system.redaction import redact

#: Free bytes of a disk below which it counts as full. SQLite's log alone grows to 4 MB.
_FULL: Final = 1024 * 1024
_REACH: Final = "correct the path, or run this check as the user of the service"


def find_unreadable_files(inspection: Inspection) -> Iterator[Finding]:
    """Files and folders that do not exist, are of another kind, or cannot be read by this user."""
    for name in type(inspection.settings).model_fields:
        path = getattr(inspection.settings, name)
        if isinstance(path, Path) and (problem := find_access_problem(path)):
            yield Finding(
                "error", inspection.source(name), problem, "correct the path, or let the service's user read it"
            )


def find_authority_problems(inspection: Inspection) -> Iterator[Finding]:
    """A file of certificate authorities that cannot be used."""
    from doi_proxy.upstream.engine import load_authorities  # noqa: PLC0415 - it takes long to import

    path = inspection.settings.upstream_ca_bundle
    if path is not None:
        yield from inspection.find_refusal("upstream_ca_bundle", lambda: load_authorities(str(path)))


def find_store_folder_problems(inspection: Inspection) -> Iterator[Finding]:
    """A SQLite file that cannot be written: by this user, in its folder, or on its disk."""
    path, source = find_store_file(inspection.settings.store_url), inspection.source("store_url")
    if path is None:
        return
    try:
        existing = next((candidate for candidate in (path, *path.parents) if candidate.exists()), Path())
    except OSError as error:
        yield Finding("error", source, f"{redact(str(path))} cannot be reached: {error.strerror}", _REACH)
        return
    if disk := _find_disk_problem(existing):
        yield Finding("error", source, *disk)
        return
    remedy = "run this check as the user of the service, or change the owner of the folder"
    if existing == path and not os.access(path, os.R_OK | os.W_OK):
        yield Finding("error", source, f"{redact(str(path))} is not writable by this user", remedy)
    elif existing == path.parent or existing == path:
        # SQLite writes its journal beside the file.
        if not os.access(path.parent, os.W_OK | os.X_OK):
            yield Finding("error", source, f"the folder {path.parent} is not writable by this user", remedy)
    elif not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        yield Finding("error", source, f"the folder {path.parent} does not exist and cannot be created", remedy)


def _find_disk_problem(path: Path) -> tuple[str, str] | None:
    """Why nothing can be written to the disk of a file or folder, and what to do. None if something can."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    place = f"the disk of {redact(str(path))}"
    if disk.f_flag & os.ST_RDONLY:
        return f"{place} is read-only", "mount it for writing; a running service then writes by itself"
    free = disk.f_bavail * disk.f_frsize
    # A file system without a fixed number of files reports 0 of 0.
    if free < _FULL or (disk.f_files and not disk.f_favail):
        left = f"{free} bytes" if free < _FULL else "no more files"
        return f"{place} is full: {left} can be written", "make room; a running service then writes by itself"
    return None
