"""Checks of the limits of clients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from app.features.check import Finding, Inspection
from app.features.limits.settings import LimitSettings
from app.features.network_list import read_networks


def find_list_problems(inspection: Inspection) -> Iterator[Finding]:
    """Lists of networks that cannot be used."""
    settings = inspection.settings.group(LimitSettings)
    files = {"client_allow_file": settings.client_allow_file, "client_deny_file": settings.client_deny_file}
    for name, path in files.items():
        if path is not None:
            yield from inspection.find_refusal(name, partial(read_networks, path))
