"""What the admin API takes and returns. The OpenAPI document of `/admin` is made from these models."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

#: Seconds for which a client can be denied. Beyond that, `client_deny_file` is the place.
MAX_DENIAL_SECONDS = 30 * 86_400.0
#: Names that a refresh of a prefix fetches by default, and the most that it can fetch.
REFRESH_LIMIT = 100
MAX_REFRESHED = 1_000
#: Characters of a name or prefix in a request.
_MAX_NAME = 4_096


class _Request(BaseModel):
    """A body. An unknown member is an error, so a misspelled condition does nothing."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class PurgeRequest(_Request):
    """Which entries to purge: exactly one of `doi`, `prefix`, `negative` and `all`."""

    doi: str | None = Field(None, max_length=_MAX_NAME, description="A name, in any form.", examples=["10.1000/182"])
    prefix: str | None = Field(None, max_length=_MAX_NAME, description="All names under a prefix, such as `10.1000`.")
    negative: bool = Field(False, description="All names that were not found, or have no values.")
    all: bool = Field(False, description="All entries.")
    soft: bool = Field(False, description="Make the entries stale and keep them for outages, instead of deleting them.")
    dry_run: bool = Field(False, description="Count the entries, and change nothing.")

    @model_validator(mode="after")
    def _select_once(self) -> PurgeRequest:
        if sum((self.doi is not None, self.prefix is not None, self.negative, self.all)) != 1:
            raise ValueError("exactly one of doi, prefix, negative and all must be set")
        return self


class RefreshRequest(_Request):
    """What to fetch from the upstream now: exactly one of `doi` and `prefix`."""

    doi: str | None = Field(None, max_length=_MAX_NAME, description="A name, in any form.", examples=["10.1000/182"])
    prefix: str | None = Field(
        None, max_length=_MAX_NAME, description="The names under a prefix that the cache has, such as `10.1000`."
    )
    limit: int = Field(
        REFRESH_LIMIT,
        ge=1,
        le=MAX_REFRESHED,
        description="Largest number of names of a prefix. The oldest answers come first.",
    )

    @model_validator(mode="after")
    def _select_once(self) -> RefreshRequest:
        if (self.doi is None) == (self.prefix is None):
            raise ValueError("exactly one of doi and prefix must be set")
        return self


class DenyRequest(_Request):
    """The network to deny, and for how long."""

    network: str = Field(max_length=64, description="A network or an address.", examples=["192.0.2.0/24"])
    seconds: float = Field(
        ge=0, le=MAX_DENIAL_SECONDS, description="Seconds from now; `0` ends a denial.", examples=[600]
    )

    @field_validator("network")
    @classmethod
    def _read_network(cls, value: str) -> str:
        try:
            network = ip_network(value.strip())
        except ValueError as error:
            raise ValueError(f"not a network such as 192.0.2.0/24 or 2001:db8::/32: {error}") from error
        if not network.prefixlen:
            raise ValueError(f"{network} has every client; name a smaller network, or stop the service instead")
        return str(network)


class EntryReport(BaseModel):
    """The cached answer about a name."""

    doi: str = Field(description="The name in its canonical form.", examples=["10.1000/182"])
    state: Literal["fresh", "stale", "expired", "registry"] = Field(
        description="`stale` and `registry` are served only during an outage. `registry` is from an agency's file."
    )
    response_code: int = Field(description="1 found, 100 not found, 200 no values.")
    tier: Literal["memory", "store"] = Field(description="Where the entry was found: this process's memory, the store.")
    fetched: str | None = Field(
        description="When the upstream gave the answer, in UTC; the date of the record if it is from an agency's file. "
        "Null if it is not known, as of a seed without times.",
        examples=["2026-01-01T12:00:00Z"],
    )
    fresh_until: str | None = Field(description="The end of its TTL, in UTC; null if it is not known.")
    stale_until: str
    age: int | None = Field(description="Seconds since `fetched`; null if it is not known.")
    ttl: int | None = Field(
        description="Seconds until the end of its TTL; negative for a stale entry, null if it is not known."
    )
    verified: bool = Field(description="Whether a handle server's signature proves the answer, until its TTL ends.")
    values: list[dict[str, Any]] = Field(description="The record's values, as the upstream sent them.")
    agency: str | None = Field(None, description="The registration agency whose file the record is from.")
    hidden_by: str | None = Field(
        None,
        description="File and line of the local record that wins over this entry.",
        examples=["a.toml:3"],
    )


class PurgeReport(BaseModel):
    """The result of a purge."""

    entries: int = Field(description="Entries that were purged, or that would be.")
    soft: bool
    dry_run: bool


class RefreshReport(BaseModel):
    """The result of a refresh."""

    doi: str
    refreshed: bool = Field(description="Whether the upstream answered. If not, the cache keeps its entry.")
    failure: str | None = Field(None, description="The token of the failure, as in Cache-Status.")
    entry: EntryReport | None = None


class PrefixRefreshReport(BaseModel):
    """The result of the refresh of a prefix."""

    prefix: str
    refreshed: int = Field(description="Names for which the upstream answered.")
    failed: int = Field(description="Names for which it did not. The cache keeps their entries.")
    left_out: int = Field(description="Names of the cache beyond `limit`, and those after the refresh was given up.")
    failure: str | None = Field(None, description="The token of the last failure, as in Cache-Status.")


class DenyReport(BaseModel):
    """The result of a denial."""

    network: str
    until: str = Field(description="The end of the denial, in UTC.")


class DenialsReport(BaseModel):
    """The denials in force."""

    denied: list[DenyReport]


class ReloadReport(BaseModel):
    """The result of a reload. What the process makes of the new settings is in its log."""

    reloading: bool = True
