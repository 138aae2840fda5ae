"""The library of a running application."""

from __future__ import annotations

from doi_proxy.features.library.library import Library
from doi_proxy.web.application import Application


def library_of(application: Application) -> Library:
    """The library, which is one of the stages."""
    found = application._stages.detours
    assert isinstance(found, Library)
    return found
