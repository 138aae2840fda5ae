"""The export of traces."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from doi_proxy.features.options import SettingsGroup, require_host


class TracingSettings(SettingsGroup):
    """The export of traces."""

    otel_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^?#@\s]+$",
        description="URL of the collector of traces, by OTLP over HTTP, such as "
        "`http://127.0.0.1:4318/v1/traces`. Without it, none are sent. It needs `pip install "
        "'doi-proxy[otel]'`. Set it if you collect traces.",
    )

    @field_validator("otel_endpoint")
    @classmethod
    def _name_collector_host(cls, value: str | None) -> str | None:
        if value is not None:
            require_host(value)
        return value


SETTINGS: Final = TracingSettings
TABLES: Final = ("otel",)
