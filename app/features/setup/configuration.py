"""The settings of one proxy together with the place where each was set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.assembly.settings import Settings
from app.assembly.settings.sources import SourcedValue


@dataclass(frozen=True, slots=True)
class Configuration:
    """Valid settings, and the values that were set somewhere."""

    settings: Settings
    values: Mapping[str, SourcedValue]

    def is_set(self, name: str) -> bool:
        """Whether a setting has a value that differs from its default. No if its feature is not installed."""
        field = Settings.model_fields.get(name)
        return field is not None and bool(self.settings.value(name) != field.default)

    def source(self, name: str) -> str:
        """Where a setting was set, such as `DOI_PROXY_PORT` or `--port`; its name if it has its default."""
        one = self.values.get(name)
        return one.source if one else name
