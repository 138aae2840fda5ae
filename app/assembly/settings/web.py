"""The contact on the pages, how long browsers keep answers, and redirects through the library."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from app.features.options import RELOADED, SettingsGroup


class WebSettings(SettingsGroup):
    """The contact on the pages, how long browsers keep answers, and redirects through the library."""

    library_rules: Path | None = Field(
        None,
        description="TOML file of rules that lead readers through a service of the library, such as EZproxy. A change "
        "takes effect without a reload.",
        json_schema_extra=RELOADED,
    )
    suggestion_queries: int = Field(
        2,
        ge=0,
        le=5,
        description="Limit of upstream queries for one not-found page that find out which suggested names exist. All "
        "other queries go first. With 0, the rules alone decide the order.",
    )
    suggestion_timeout: float = Field(1.0, gt=0, description="Seconds that a not-found page waits for these queries.")
    web_contact: str | None = Field(
        None, description="Contact for users, shown on every page: an e-mail address, a URL or plain text."
    )
    web_max_age: float = Field(
        300.0,
        ge=0,
        description="Upper limit of max-age sent to browsers, in seconds. A low value makes a corrected target "
        "visible sooner.",
    )
