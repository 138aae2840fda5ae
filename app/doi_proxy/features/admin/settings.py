"""The admin API."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from doi_proxy.features.options import RELOADED_SECRET, UNIX_ADDRESS, SettingsGroup, is_host_and_port

#: Characters of the shortest admin token.
MIN_TOKEN: Final = 16


class AdminSettings(SettingsGroup):
    """The admin API."""

    admin_token: str | None = Field(
        None,
        description="Secret of at least 16 characters that operators send to the admin API; the API is off without it. "
        "It signs the probes of `doi-proxy doctor` too. Set it to purge, refresh and explain while the service runs, "
        "with DOI_PROXY_ADMIN_TOKEN_FILE.",
        json_schema_extra=RELOADED_SECRET,
    )
    admin_listen: str | None = Field(
        None,
        description="Address of a listener for the admin API alone: a host and a port such as `127.0.0.1:8001`, "
        "or a socket such as `unix:/run/doi-proxy/admin.sock`. The main address then has no admin "
        "API. Set it to keep the admin API off the address of readers.",
    )

    @field_validator("admin_token")
    @classmethod
    def _check_token(cls, value: str | None) -> str | None:
        """Refuse a token that can be guessed, or that a header cannot carry (RFC 6750, section 2.1)."""
        if value is not None and (
            len(value) < MIN_TOKEN or not value.isascii() or not value.isprintable() or " " in value
        ):
            raise ValueError(
                f"the token needs at least {MIN_TOKEN} printable ASCII characters without spaces, such as the output "
                "of `openssl rand -base64 32`"
            )
        return value

    @field_validator("admin_listen")
    @classmethod
    def _check_admin_listen(cls, value: str | None) -> str | None:
        if value is not None and not is_host_and_port(value) and not UNIX_ADDRESS.fullmatch(value):
            raise ValueError(
                f"{value[:120]!r} is not an address to listen on; write it as 127.0.0.1:8001, [::1]:8001 or "
                "unix:/run/doi-proxy/admin.sock"
            )
        return value


SETTINGS: Final = AdminSettings
TABLES: Final = ("admin",)
