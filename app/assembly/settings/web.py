"""The contact on the pages."""

from __future__ import annotations

from pydantic import Field

from app.features.options import SettingsGroup


class WebSettings(SettingsGroup):
    """The contact on the pages."""

    web_contact: str | None = Field(
        None, description="Contact for users, shown on every page: an e-mail address, a URL or plain text."
    )
