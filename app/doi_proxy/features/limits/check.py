"""Checks of the limits of clients."""

from __future__ import annotations

from collections.abc import Iterator

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.check import Finding, Inspection
from doi_proxy.features.limits.list_file import allowed_clients, denied_clients
from doi_proxy.features.limits.settings import LimitSettings

_REMEDY = "correct the file; until then the last good list is in force, and without any a start fails"


def find_list_problems(inspection: Inspection) -> Iterator[Finding]:
    """Lists of networks that cannot be used."""
    settings, store_url = inspection.settings.group(LimitSettings), inspection.settings.store_url
    for name, file in (
        ("client_allow_file", allowed_clients(settings.client_allow_file, store_url)),
        ("client_deny_file", denied_clients(settings.client_deny_file, store_url)),
    ):
        try:
            if file.path is not None:
                file.examine(file.path)
        except ConfigurationError as error:
            if not inspection.is_start or file.find_last_good() is None:
                yield Finding("error", inspection.source(name), error.message, _REMEDY)
