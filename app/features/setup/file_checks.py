"""Checks of the files that settings name: readable by this user, and with content that the proxy accepts."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.features.check import Finding, Inspection
from app.features.redaction import redact
from app.server.certificate import load_certificate

#: Days before the end of a certificate from which its end is a warning.
_EXPIRY_DAYS: Final = 30.0
_DAY: Final = 86_400.0
_SQLITE: Final = "sqlite:///"
_REACH: Final = "correct the path, or run this check as the user of the service"


def find_unreadable_files(inspection: Inspection) -> Iterator[Finding]:
    """Files and folders that do not exist, are of another kind, or cannot be read by this user."""
    for name in type(inspection.settings).model_fields:
        path = getattr(inspection.settings, name)
        if isinstance(path, Path) and (problem := _access_problem(path)):
            yield Finding(
                "error", inspection.source(name), problem, "correct the path, or let the service's user read it"
            )


def _access_problem(path: Path) -> str | None:
    try:
        path.stat()
    except OSError as error:
        return f"{path} cannot be used: {error.strerror}"
    if not (path.is_file() or path.is_dir()):
        return f"{path} is not a regular file"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return None if os.access(path, needed) else f"{path} is not readable by the user who runs this check"


def find_certificate_problems(inspection: Inspection) -> Iterator[Finding]:
    """A certificate that cannot serve HTTPS, ends soon, or is for another host."""
    settings = inspection.settings
    certificate, key = settings.tls_cert, settings.tls_key
    name = "tls_cert" if certificate is not None else "tls_key"
    if any(path is not None and _access_problem(path) for path in (certificate, key)):
        return
    remedy = "use a PEM certificate chain and the key that belongs to it"
    refusals = list(inspection.find_refusal(name, lambda: load_certificate(certificate, key), remedy))
    yield from refusals
    if certificate is not None and not refusals:
        yield from _judge_certificate(inspection, certificate)


def find_authority_problems(inspection: Inspection) -> Iterator[Finding]:
    """A file of certificate authorities that cannot be used."""
    from app.upstream.engine import load_authorities  # noqa: PLC0415 - it takes long to import

    path = inspection.settings.upstream_ca_bundle
    if path is not None:
        yield from inspection.find_refusal("upstream_ca_bundle", lambda: load_authorities(str(path)))


def _judge_certificate(inspection: Inspection, certificate: Path) -> Iterator[Finding]:
    # The public part of `ssl` reads only certificates that it has verified.
    fields = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    source = inspection.source("tls_cert")
    days = (ssl.cert_time_to_seconds(fields["notAfter"]) - time.time()) / _DAY
    if days < 0:
        yield Finding("error", source, f"the certificate ended on {fields['notAfter']}", "renew it")
    elif days < _EXPIRY_DAYS:
        yield Finding(
            "warning", source, f"the certificate ends in {days:.0f} days, on {fields['notAfter']}", "renew it"
        )
    host = urlsplit(inspection.settings.public_url or "").hostname
    names = [value.lower() for _, value in fields.get("subjectAltName", ())]
    if host and host not in names and f"*.{host.partition('.')[2]}" not in names:
        yield Finding(
            "warning",
            source,
            f"the certificate is for {', '.join(names) or 'no host'}, and public_url has the host {host}",
            "use a certificate for that host, unless a front proxy serves HTTPS",
        )


def find_store_folder_problems(inspection: Inspection) -> Iterator[Finding]:
    """A SQLite file that this user cannot write, or a folder in which it cannot be created."""
    url = inspection.settings.store_url
    if not url.startswith(_SQLITE):
        return
    path, source = Path(url.removeprefix(_SQLITE)), inspection.source("store_url")
    try:
        existing = next((one for one in (path, *path.parents) if one.exists()), Path())
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
