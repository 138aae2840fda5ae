"""Checks of the limits of clients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from app.features.check import Finding, Inspection
from app.features.limits.settings import LimitSettings
from app.features.network_list import read_denied, read_networks


def find_list_problems(inspection: Inspection) -> Iterator[Finding]:
    """Lists of networks that cannot be used."""
    settings = inspection.settings.group(LimitSettings)
    if settings.client_allow_file is not None:
        yield from inspection.find_refusal("client_allow_file", partial(read_networks, settings.client_allow_file))
    if settings.client_deny_file is not None:
        yield from inspection.find_refusal("client_deny_file", partial(read_denied, settings.client_deny_file))
