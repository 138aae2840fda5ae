"""What the groups of settings have in common."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, JsonValue

from app.features.redaction import redact

#: Marks a setting that a running process reloads at SIGHUP.
RELOADED: Final[dict[str, JsonValue]] = {"reloaded": True}
#: Marks a setting whose value is never printed.
SECRET: Final[dict[str, JsonValue]] = {"secret": True}
#: Marks a setting with both properties.
RELOADED_SECRET: Final[dict[str, JsonValue]] = {"reloaded": True, "secret": True}


class SettingsGroup(BaseModel):
    """Some of the settings of one proxy."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def require_hosts(value: str | None) -> str | None:
    """Refuse a URL without a host. The rest of the program parses URLs with urlsplit too."""
    for item in (value or "").split():
        url = item.partition("=")[2] if "=" in item.partition("://")[0] else item
        if url == "hdl:":
            continue
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            raise ValueError(f"the URL {redact(url)[:80]!r} has no host name")
    return value
