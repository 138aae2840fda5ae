"""`doi-proxy config`: the settings in force."""

from __future__ import annotations

from collections.abc import Collection

from app.redaction import MASK, redact
from app.settings import Settings
from app.settings_sources import variable


def show_settings(settings: Settings, secrets: Collection[str] = ()) -> int:
    """Print each setting as an environment variable. `secrets` are the settings that were read from secret files.

    A setting without a value is printed as a comment, because most settings cannot be empty.
    """
    for name, value in settings.model_dump(mode="json").items():
        if value is None:
            print(f"#{variable(name)}=")
        else:
            print(f"{variable(name)}={MASK if name in secrets else redact(str(value))}")
    return 0
