"""`doi-proxy config`: the settings in force."""

from __future__ import annotations

import re

from app.settings import Settings, variable

#: The password in a URL such as rediss://user:secret@host.
_PASSWORD = re.compile(r"(//[^/@:]*:).+@")


def show_settings(settings: Settings) -> int:
    """Print each setting as an environment variable, passwords masked."""
    for name, value in settings.model_dump(mode="json").items():
        shown = "" if value is None else _PASSWORD.sub(r"\1***@", str(value))
        print(f"{variable(name)}={shown}")
    return 0
