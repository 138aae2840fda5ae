"""The application as any ASGI server would run it."""

from __future__ import annotations

import os

from app.assembly.program_log import begin_logging
from app.assembly.settings import load
from app.main import create
from app.web.application import Application


def create_from_environment() -> Application:
    """The application with the settings of the environment."""
    settings = load({}, os.environ)
    begin_logging(settings)
    return create(settings)
