"""The library of a running application."""

from __future__ import annotations

from app.features.library.library import Library
from app.web.application import Application


def library_of(application: Application) -> Library:
    """The library, which is one of the stages."""
    return next(stage for stage in application._stages.detours if isinstance(stage, Library))
