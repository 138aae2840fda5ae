"""`doi-proxy config`: the settings in force."""

from __future__ import annotations

from collections.abc import Collection

from app.redaction import MASK, redact
from app.settings import Settings, variable


def show_settings(settings: Settings, secrets: Collection[str] = ()) -> int:
    """Print each setting as an environment variable. `secrets` are the settings that came from files of secrets.

    A setting without a value is a comment, since most of them cannot be set to nothing.
    """
    for name, value in settings.model_dump(mode="json").items():
        if value is None:
            print(f"#{variable(name)}=")
        else:
            print(f"{variable(name)}={MASK if name in secrets else redact(str(value))}")
    return 0
