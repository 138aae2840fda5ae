"""The admin API: look at an entry, refresh, purge, reload, deny a client."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field, field_validator

from doi_proxy.errors import ConfigurationError, RateExceeded
from doi_proxy.features.feature import Core, Feature, Others, Part
from doi_proxy.system import options


class AdminSettings(options.SettingsGroup):
    """The admin API."""

    tables = ("admin",)

    admin_token: str | None = Field(
        None,
        description="Secret of at least 16 characters that operators send to the admin API; the API is off without it. "
        "It signs the probes of `doi-proxy doctor` too. Set it to purge, refresh and explain while the service runs, "
        "with DOI_PROXY_ADMIN_TOKEN_FILE.",
        json_schema_extra=options.RELOADED_SECRET,
    )

    @field_validator("admin_token")
    @classmethod
    def _check_token(cls, value: str | None) -> str | None:
        """Refuse a token that can be guessed, or that a header cannot carry (RFC 6750, section 2.1)."""
        if value is not None and (len(value) < 16 or not value.isascii() or not value.isprintable() or " " in value):
            raise ValueError(
                "the token needs at least 16 printable ASCII characters without spaces, such as the output "
                "of `openssl rand -base64 32`"
            )
        return value


class Admin(Feature):
    """The gate with the API behind it, if there is a token."""

    name = "admin"
    summary = "the admin API, and the commands show, refresh and purge"
    needs = ("limits",)
    settings = AdminSettings

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """The gate."""
        context, settings = self.context, self.context.settings.group(AdminSettings)
        if settings.admin_token is None:
            context.reloads.on_reload(_refuse_first_token, "admin_token")
            return ()
        from doi_proxy.features.admin.gate import WRONG_TOKEN_RATE, WRONG_TOKENS, AdminGate
        from doi_proxy.features.admin.http import create_admin
        from doi_proxy.features.limits.feature import Limits
        from doi_proxy.rationing import ClientBuckets
        from doi_proxy.system.version import read_version
        from doi_proxy.web.request_path import client_of

        gate = AdminGate(
            create_admin(read_version(), context, core, others[Limits]),
            token=settings.admin_token,
            attempts=ClientBuckets(WRONG_TOKENS, WRONG_TOKEN_RATE, RateExceeded, context.clock),
            client_of=client_of,
            base=core.link.base,
            has_listener=bool(context.settings.management_listen),
        )
        context.reloads.on_reload(lambda new: gate.set_token(new.group(AdminSettings).admin_token), "admin_token")
        return (gate,)


def _refuse_first_token(new: options.Settings) -> None:
    """A process that began without the admin API does not open it later."""
    if new.group(AdminSettings).admin_token is not None:
        raise ConfigurationError("the admin API has its first token; restart the service to open the API")
