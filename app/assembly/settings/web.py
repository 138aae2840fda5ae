"""The contact on the pages, and how long browsers keep answers."""

from __future__ import annotations

from pydantic import Field

from app.features.options import MAX_LIFETIME, SettingsGroup


class WebSettings(SettingsGroup):
    """The contact on the pages, and how long browsers keep answers."""

    web_contact: str | None = Field(
        None, description="Contact for users, shown on every page: an e-mail address, a URL or plain text."
    )
    web_max_age: float = Field(
        300.0,
        ge=0,
        le=MAX_LIFETIME,
        description="Upper limit of max-age sent to browsers, in seconds. A low value makes a corrected target "
        "visible sooner.",
    )
