"""Checks of the files that settings name: readable by this user, and with content that the proxy accepts."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.assembly.core import build_pages
from app.assembly.features import switched_on
from app.assembly.settings import Settings
from app.errors import ConfigurationError
from app.features.library.file import read_library_rules
from app.features.limits.network_list import read_networks
from app.features.local_records.files import FileBounds, read_files
from app.features.native.opening import read_root
from app.features.redaction import redact
from app.features.setup.configuration import Configuration
from app.features.setup.finding import Finding
from app.server.listening import check_certificate
from app.web.country import open_countries
from app.web.record_headers import read_allowed

#: Days before the end of a certificate from which its end is a warning.
_EXPIRY_DAYS: Final = 30.0
_DAY: Final = 86_400.0
_SQLITE: Final = "sqlite:///"


def find_missing_libraries(configuration: Configuration) -> Iterator[Finding]:
    """A feature that the settings switch on, and a library of it that is not installed."""
    try:
        switched_on(configuration.settings)
    except ConfigurationError as error:
        yield Finding("error", "", error.message)


def find_unreadable_files(configuration: Configuration) -> Iterator[Finding]:
    """Files and folders that do not exist, or that this user cannot read."""
    for name in Settings.model_fields:
        path = getattr(configuration.settings, name)
        if isinstance(path, Path) and (problem := _access_problem(path)):
            yield Finding(
                "error", configuration.source(name), problem, "correct the path, or let the service's user read it"
            )


def _access_problem(path: Path) -> str | None:
    try:
        path.stat()
    except OSError as error:
        return f"{path} cannot be used: {error.strerror}"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return None if os.access(path, needed) else f"{path} is not readable by the user who runs this check"


#: What the proxy reads at its start. Each raises ConfigurationError.
_READERS: Final[tuple[tuple[str, Callable[[Settings], object]], ...]] = (
    ("country_database", lambda settings: open_countries(settings.country_database)),
    ("record_headers", lambda settings: read_allowed(settings.record_headers)),
    (
        "client_allow_file",
        lambda settings: settings.value("client_allow_file") and read_networks(settings.value("client_allow_file")),
    ),
    (
        "client_deny_file",
        lambda settings: settings.value("client_deny_file") and read_networks(settings.value("client_deny_file")),
    ),
    ("branding", build_pages),
    ("upstream_bootstrap", read_root),
)


def find_unusable_content(configuration: Configuration) -> Iterator[Finding]:
    """Files and lists that can be read and have content that the proxy refuses."""
    for name, read in _READERS:
        path = getattr(configuration.settings, name, None)
        if isinstance(path, Path) and _access_problem(path):
            continue
        try:
            read(configuration.settings)
        except ConfigurationError as error:
            problem, _, remedy = error.message.partition("; ")
            yield Finding("error", configuration.source(name), problem, remedy)


def find_local_record_problems(configuration: Configuration) -> Iterator[Finding]:
    """Every problem in the files of local records, with its line and column."""
    settings = configuration.settings
    if settings.value("local_records") is None or _access_problem(settings.value("local_records")):
        return
    bounds = FileBounds.of_records(settings.value("local_records_max"))
    for problem in read_files(settings.value("local_records"), bounds, time.time()).problems:
        remedy = "correct the file; until then the last good records stay in force, and a start fails"
        yield Finding(
            problem.severity,
            configuration.source("local_records"),
            str(problem),
            remedy if problem.severity == "error" else "",
        )


def find_library_rule_problems(configuration: Configuration) -> Iterator[Finding]:
    """Every problem in the library rules, with its line; among them are expectations that do not hold."""
    path = configuration.settings.value("library_rules")
    if path is None or _access_problem(path):
        return
    for problem in read_library_rules(path).problems:
        yield Finding("error", configuration.source("library_rules"), str(problem), "correct the file; a start fails")


def find_certificate_problems(configuration: Configuration) -> Iterator[Finding]:
    """A certificate that cannot serve HTTPS, ends soon, or is for another host."""
    settings = configuration.settings
    certificate, key = settings.tls_cert, settings.tls_key
    name = "tls_cert" if certificate is not None else "tls_key"
    if any(path is not None and _access_problem(path) for path in (certificate, key)):
        return
    try:
        check_certificate(certificate, key)
    except ConfigurationError as error:
        problem, _, remedy = error.message.partition("; ")
        remedy = remedy or "use a PEM certificate chain and the key that belongs to it"
        yield Finding("error", configuration.source(name), problem, remedy)
        return
    if certificate is not None:
        yield from _judge_certificate(configuration, certificate)


def _judge_certificate(configuration: Configuration, certificate: Path) -> Iterator[Finding]:
    # The public part of `ssl` reads only certificates that it has verified.
    fields = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    source = configuration.source("tls_cert")
    days = (ssl.cert_time_to_seconds(fields["notAfter"]) - time.time()) / _DAY
    if days < 0:
        yield Finding("error", source, f"the certificate ended on {fields['notAfter']}", "renew it")
    elif days < _EXPIRY_DAYS:
        yield Finding(
            "warning", source, f"the certificate ends in {days:.0f} days, on {fields['notAfter']}", "renew it"
        )
    host = urlsplit(configuration.settings.public_url or "").hostname
    names = [value.lower() for _, value in fields.get("subjectAltName", ())]
    if host and host not in names and f"*.{host.partition('.')[2]}" not in names:
        yield Finding(
            "warning",
            source,
            f"the certificate is for {', '.join(names) or 'no host'}, and public_url has the host {host}",
            "use a certificate for that host, unless a front proxy serves HTTPS",
        )


def find_store_folder_problems(configuration: Configuration) -> Iterator[Finding]:
    """A SQLite file that this user cannot write, or a folder in which it cannot be created."""
    url = configuration.settings.store_url
    if not url.startswith(_SQLITE):
        return
    path, source = Path(url.removeprefix(_SQLITE)), configuration.source("store_url")
    existing = next((one for one in (path, *path.parents) if one.exists()), Path())
    remedy = "run this check as the user of the service, or change the owner of the folder"
    if existing == path and not os.access(path, os.R_OK | os.W_OK):
        yield Finding("error", source, f"{redact(str(path))} is not writable by this user", remedy)
    elif existing == path.parent or existing == path:
        # SQLite writes its journal beside the file.
        if not os.access(path.parent, os.W_OK | os.X_OK):
            yield Finding("error", source, f"the folder {path.parent} is not writable by this user", remedy)
    elif not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        yield Finding("error", source, f"the folder {path.parent} does not exist and cannot be created", remedy)
