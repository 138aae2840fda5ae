"""The upstream handle API, and how gently it is queried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from doi_proxy.system import options
from doi_proxy.system.redaction import redact
from doi_proxy.system.setting_values import Duration, TextList

#: A URL of an HTTP API, whose scheme has any letter case (RFC 3986, section 3.1), or of handle servers.
_UPSTREAM: Final = re.compile(r"(?i:https?)://[^?#\s]+|hdl:(//[^/?#\s@]+|(/[^/?#\s][^?#\s]*)?(\?[0-9A-Fa-f.:=&]+)?)")
#: Seconds of the rate that are saved up while no query is sent, so the links of a page are looked up together.
_BURST_SECONDS: Final = 5.0
_FORM: Final = (
    "a URL begins with http:// or https:// and has no blank, `?` or `#`, such as https://doi.org; or write hdl: or "
    "hdl://host:port. Separate several by commas"
)
#: An e-mail address without its scheme.
_ADDRESS: Final = re.compile(r"[^\s@:/]+@[^\s@:/]+")


class UpstreamSettings(options.SettingsGroup):
    """The upstream handle API, and how gently it is queried."""

    upstream_url: TextList = Field(
        ("https://doi.org",),
        min_length=1,
        description="Base URL of the upstream handle API. `hdl:` queries the handle servers themselves, from the "
        "root, `hdl://host:port` one of them, and `hdl:/path` those of a site whose `siteinfo.json` "
        "or `sitebndl.zip` is at the path, by their native protocol. `?OUTSIDE=INSIDE` after `hdl:` "
        "or the path maps the address of a server to the one inside a NAT. Several URLs are tried in "
        "this order. Change it to query your own handle servers, or another resolver.",
    )
    upstream_routes: TextList = Field(
        (),
        description="Upstreams for single prefixes, such as `10.5072=https://handle.test.example`. Set it if the "
        "records of your prefixes are first, or only, on a server of your own.",
    )
    upstream_contact: str | None = Field(
        None,
        pattern=r"^((?i:https?)://[^/?#\s]+[^\s]*|(?i:mailto):[^\s@]+@[^\s@]+)$",
        description="Contact in the User-Agent sent upstream: an e-mail address or a URL of this institution. Set "
        "it always: the operators of the upstream write to you before they block you.",
    )
    upstream_bootstrap: Path | None = Field(
        None,
        description="File with the sites of the handle system's root, for `hdl:`. It is the handle API's answer "
        "about `0.NA/0.NA`, and the start of trust for signatures. Set it with `hdl:`.",
    )
    upstream_verify: Literal["never", "when-asked", "lookups", "always"] = Field(
        "lookups",
        description="When the signatures of handle servers are verified: `when-asked` by `?cert`, `lookups` also "
        "for each record of a prefix or a service on the way, or for every answer. An answer whose "
        "signature is missing or wrong counts as a failure. `always` allows no HTTP API. Change it to "
        "`always` if no unsigned answer may be served.",
    )
    upstream_private_servers: bool = Field(
        False,
        description="With `hdl:`, query handle servers at private and loopback addresses too. Any owner of a "
        "prefix can name such an address. With `metadata`, servers of agencies at such addresses too. Turn it on if "
        "your own handle servers have such addresses.",
    )
    upstream_ca_bundle: Path | None = Field(
        None,
        description="PEM file of a private certificate authority, trusted in addition to the public ones. Set it "
        "if your own authority signed the certificate of the upstream, or of a proxy on the way.",
    )
    upstream_timeout: Duration = Field(
        10.0,
        gt=0,
        le=options.MAX_WAIT,
        description="Timeout for a whole upstream query. Raise it for a slow server of your own.",
    )
    upstream_rate: float = Field(
        10.0,
        gt=0,
        le=options.MAX_RATE,
        json_schema_extra=options.RELOADED,
        description="Upstream queries a second, for all clients together. Raise it if the upstream agrees, or is "
        "your own.",
    )
    upstream_burst: float = Field(
        default_factory=lambda known: min(max(1.0, _BURST_SECONDS * known["upstream_rate"]), float(options.MAX_RATE)),
        ge=1,
        le=options.MAX_RATE,
        json_schema_extra=options.RELOADED,
        description="Upstream queries that can be sent at once after an idle period. If it is not set, it is what "
        "`upstream_rate` allows in 5 seconds. Set it if the upstream allows a burst of another size.",
    )
    upstream_max_concurrency: int = Field(
        16,
        ge=1,
        le=options.MAX_COUNT,
        json_schema_extra=options.RELOADED,
        description="Upstream queries in progress at the same time. Raise it with the rate, if the upstream "
        "answers slowly.",
    )
    upstream_breaker_failures: int = Field(
        10,
        ge=1,
        le=options.MAX_COUNT,
        description="Consecutive names for which the upstream failed before the circuit breaker opens. It exists "
        "for drills: a service needs no other value.",
    )
    upstream_breaker_cooldown: Duration = Field(
        15.0,
        gt=0,
        le=options.MAX_WAIT,
        description="Time for which the circuit breaker stays open before one query probes the upstream. It "
        "exists for drills: a service needs no other value.",
    )

    @field_validator("upstream_contact", mode="before")
    @classmethod
    def _name_scheme(cls, value: object) -> object:
        # The convention of polite clients is a URI, and people write an address.
        return f"mailto:{value}" if isinstance(value, str) and _ADDRESS.fullmatch(value) else value

    @field_validator("upstream_contact")
    @classmethod
    def _check_contact(cls, value: str | None) -> str | None:
        if value is not None:
            options.require_no_secret(value)
        return value

    @field_validator("upstream_url")
    @classmethod
    def _check_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            if not _UPSTREAM.fullmatch(url):
                raise ValueError(f"{redact(url)[:80]!r} is not an upstream; {_FORM}")
            options.require_host(url)
        return value

    @field_validator("upstream_routes")
    @classmethod
    def _check_routes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for route in value:
            prefix, _, url = route.partition("=")
            if not prefix or not _UPSTREAM.fullmatch(url):
                raise ValueError(
                    f"{redact(route)[:80]!r} is not a route; write PREFIX=URL, such as "
                    f"10.5072=https://handle.test.example; {_FORM}"
                )
            options.require_host(url)
        return value

    @model_validator(mode="after")
    def _need_a_root(self) -> Self:
        urls = (*self.upstream_url, *self.upstream_route_urls.values())
        if self.upstream_bootstrap is None and any(url.partition("?")[0] == "hdl:" for url in urls):
            raise ValueError("upstream_url = 'hdl:' needs upstream_bootstrap, a file with the root's sites")
        return self

    @model_validator(mode="after")
    def _need_signatures(self) -> Self:
        named = {"upstream_url": self.upstream_url, "upstream_routes": self.upstream_route_urls.values()}
        if self.upstream_verify == "always":
            for setting, urls in named.items():
                if any(not url.startswith("hdl:") for url in urls):
                    # A URL can have a password, so it is not named.
                    raise ValueError(
                        f"upstream_verify = 'always' needs handle servers, and {setting} names an HTTP API, whose "
                        "answers are not signed; name hdl: or hdl://host:port, or set upstream_verify to lookups"
                    )
        return self

    @property
    def upstream_route_urls(self) -> dict[str, str]:
        """The upstream of each routed prefix."""
        return dict(route.split("=", 1) for route in self.upstream_routes)
