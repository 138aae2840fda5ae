"""Checks of the files that settings name: readable by this user, and with content that the proxy accepts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.features.check import Finding, Inspection, find_access_problem
from app.features.redaction import redact

_SQLITE: Final = "sqlite:///"
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
    from app.upstream.engine import load_authorities  # noqa: PLC0415 - it takes long to import

    path = inspection.settings.upstream_ca_bundle
    if path is not None:
        yield from inspection.find_refusal("upstream_ca_bundle", lambda: load_authorities(str(path)))


def find_store_folder_problems(inspection: Inspection) -> Iterator[Finding]:
    """A SQLite file that this user cannot write, or a folder in which it cannot be created."""
    url = inspection.settings.store_url
    if not url.startswith(_SQLITE):
        return
    path, source = Path(url.removeprefix(_SQLITE)), inspection.source("store_url")
    try:
        existing = next((candidate for candidate in (path, *path.parents) if candidate.exists()), Path())
    except OSError as error:
        yield Finding("error", source, f"{redact(str(path))} cannot be reached: {error.strerror}", _REACH)
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
