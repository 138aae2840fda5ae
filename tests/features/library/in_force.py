"""The library of a running application."""

from __future__ import annotations

from doi_proxy.features.library.library import Library
from doi_proxy.web.application import Application


def library_of(application: Application) -> Library:
    """The library, which is one of the stages."""
    return next(stage for stage in application._stages.detours if isinstance(stage, Library))
