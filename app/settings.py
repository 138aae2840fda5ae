"""Every setting, its unit and its default. A flag wins over the environment, the environment over the TOML file.

`DOI_PROXY_UPSTREAM_URL=…` in the environment, `url` in the table `[upstream]` of the TOML file and
`--upstream-url` on the command line are the same setting.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from app.errors import ConfigurationError
from app.redaction import MASK, redact
from app.setting_errors import explain
from app.settings_sources import SourcedValue, flag_of, read_values, variable

#: The tables of the TOML file. The setting `upstream_url` is `url` in `[upstream]`.
TABLES: Final = ("server", "client", "upstream", "cache", "store", "web", "library", "branding", "admin", "status")
#: Characters of the shortest admin token.
MIN_TOKEN: Final = 16
#: Marks a setting that a running process reloads at SIGHUP.
RELOADED: Final[dict[str, JsonValue]] = {"reloaded": True}
#: Marks a setting whose value is never printed.
SECRET: Final[dict[str, JsonValue]] = {"secret": True}


class Settings(BaseModel):
    """The settings of one proxy."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; `::` serves IPv6 and IPv4.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on.")
    workers: int = Field(
        1, ge=1, le=64, description="Number of worker processes; they share one SQLite store or one Valkey server."
    )
    drain_seconds: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="Seconds after SIGTERM in which `/readyz` answers 503 while requests are still answered.",
        json_schema_extra=RELOADED,
    )
    grace_seconds: float = Field(
        8.0,
        ge=0,
        le=3600,
        description="Seconds that requests in progress get to finish after the port is closed.",
        json_schema_extra=RELOADED,
    )
    tls_cert: Path | None = Field(
        None,
        description="PEM file with the certificate chain, to serve HTTPS without a front proxy.",
        json_schema_extra=RELOADED,
    )
    tls_key: Path | None = Field(
        None, description="PEM file with the certificate's private key.", json_schema_extra=RELOADED
    )
    trusted_proxies: str = Field(
        "127.0.0.1",
        description="Addresses of front proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted, separated by "
        "commas; `*` trusts every address.",
        json_schema_extra=RELOADED,
    )
    probe_key: str | None = Field(
        None,
        min_length=16,
        description="Secret that signs the probes of `doi-proxy doctor`. Without it, probes are not answered.",
        json_schema_extra=SECRET,
    )
    seed: Path | None = Field(None, description="NDJSON file of records to load at start, each as already expired.")
    local_records: Path | None = Field(
        None,
        description="TOML file, or folder of TOML files, with records that win over the cache and the upstream. "
        "A change takes effect without a reload.",
    )
    local_records_max: int = Field(200_000, ge=1, description="Largest number of local records.")
    local_records_max_bytes: int = Field(
        64 * 1024 * 1024, ge=1, description="Largest size of all files of local records together, in bytes."
    )
    library_rules: Path | None = Field(
        None,
        description="TOML file of rules that lead readers through a service of the library, such as EZproxy. A change "
        "takes effect without a reload.",
        json_schema_extra=RELOADED,
    )
    library_cookie_seconds: float = Field(
        180 * 86400.0, gt=0, description="Seconds for which a browser keeps a reader's choice of a library service."
    )
    mode: Literal["online", "sealed"] = Field(
        "online",
        description="In mode `online` the upstream is queried. In mode `sealed` it is not, and a name outside the "
        "store gets 504.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest severity that is logged.", json_schema_extra=RELOADED
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Format of the program's log on standard error: `text`, or `json` with one object a line."
    )
    access_log: Literal["off", "json", "text"] = Field(
        "off",
        description="Format of the access log on standard output: `off`, `json` objects, or `text` as `name=value`.",
    )
    privacy_level: int = Field(
        2,
        ge=0,
        le=3,
        description="What the access log records of a request: 0 address, name and query; 1 network and name; "
        "2 name only; 3 none of them.",
    )

    max_connections: int = Field(
        0,
        ge=0,
        description="Open client connections of one worker process; `0` for as many as the limit of open files allows.",
    )
    client_max_connections: int = Field(
        256,
        ge=1,
        description="Open connections of one client; the addresses in `trusted_proxies` have no such limit.",
    )
    client_head_timeout: float = Field(
        15.0,
        gt=0,
        description="Seconds from the connection, or from the first byte, in which the head of a request must arrive.",
    )
    client_body_timeout: float = Field(
        30.0,
        gt=0,
        description="Seconds without progress after which the proxy stops waiting for the body of a request.",
    )
    client_write_timeout: float = Field(
        30.0,
        gt=0,
        description="Seconds after which the connection of a client that does not read its answer is closed.",
    )
    client_idle_timeout: float = Field(
        75.0, gt=0, description="Seconds after which an idle connection is closed; should exceed the 60 s of nginx."
    )
    client_ipv4_prefix: int = Field(
        24, ge=8, le=32, description="Length of the IPv4 prefix that counts as one client, such as a campus network."
    )
    client_ipv6_prefix: int = Field(
        64, ge=16, le=128, description="Length of the IPv6 prefix that counts as one client: a household has a /64."
    )

    client_rate: float = Field(
        0.0,
        ge=0,
        description="Limit of one client's requests a second, answers from the cache included; `0` for no limit.",
    )
    client_burst: float = Field(
        100.0, ge=1, description="Requests that one idle client can send at once, if `client_rate` is set."
    )
    client_allow_file: Path | None = Field(
        None,
        description="File of networks, one a line, that `client_rate` and `bypass_rate` do not limit; read again at "
        "SIGHUP.",
    )
    client_deny_file: Path | None = Field(
        None, description="File of networks, one a line, whose requests get 403; read again at SIGHUP."
    )
    client_most_waiting: int = Field(
        100, ge=1, description="Limit of one client's upstream queries in the queue; one more is answered 429."
    )

    public_url: str | None = Field(
        None,
        pattern=r"^https?://[^?#\s]+$",
        description="This resolver's own URL as browsers see it, with the sub-path if there is one. "
        "If it is not set, redirects to this resolver use the scheme and `Host` of the request.",
    )
    resolve: Literal["doi", "any"] = Field(
        "doi",
        description="Names that pages resolve: `doi` answers 400 for a handle that is not a DOI name, `any` "
        "resolves it.",
    )
    country_database: Path | None = Field(
        None,
        description="MMDB file that maps addresses to countries, for records that choose a location by country. "
        "None is included.",
    )
    express_lane: bool = Field(
        True, description="Send repeated simple requests a prepared answer. The bytes are the same as without it."
    )
    express_memory_bytes: int = Field(
        128 * 1024 * 1024, ge=0, description="Memory for prepared answers, in bytes, in addition to the memory tier."
    )
    record_headers: str = Field(
        "",
        pattern=r"^[A-Za-z0-9-]*(\s*,\s*[A-Za-z0-9-]+)*$",
        description="Headers that 10320/headers values are allowed to set on a redirect, separated by commas. "
        "Headers that control browsers, front proxies or the connection are refused.",
    )
    web_contact: str | None = Field(
        None, description="Contact for users, shown on every page: an e-mail address, a URL or plain text."
    )
    web_max_age: float = Field(
        300.0,
        ge=0,
        description="Upper limit of max-age sent to browsers, in seconds. A low value makes a corrected target "
        "visible sooner.",
    )

    bypass_rate: float = Field(
        1.0, gt=0, description="Limit of one client's requests a second that bypass the cache (`auth`, `cert`)."
    )
    bypass_burst: float = Field(
        60.0, ge=1, description="Requests of one idle client that can bypass the cache at once."
    )

    upstream_url: str = Field(
        "https://doi.org",
        pattern=r"^https?://[^?#\s]+(\s+https?://[^?#\s]+)*$",
        description="Base URL of the upstream handle API. Several, separated by spaces, are tried in this order.",
    )
    upstream_routes: str = Field(
        "",
        pattern=r"^(\s*[^\s=]+=https?://[^?#\s]+)*\s*$",
        description="Upstreams for single prefixes, such as `10.5072=https://handle.test.example`, separated by "
        "spaces.",
    )
    upstream_contact: str | None = Field(
        None, description="Contact in the User-Agent sent upstream: a URL or mailto: address of this institution."
    )
    upstream_literal_slashes: bool = Field(
        False, description="Send a slash in a suffix as `/` instead of `%2F`, for servers or proxies that refuse `%2F`."
    )
    upstream_ca_bundle: Path | None = Field(
        None, description="PEM file of a private certificate authority, trusted in addition to the public ones."
    )
    upstream_http2: bool = Field(
        False, description="Use HTTP/2 if the upstream offers it. It takes six times the CPU time of HTTP/1.1."
    )
    upstream_connect_timeout: float = Field(
        3.0, gt=0, description="Timeout for connecting to the upstream, in seconds."
    )
    upstream_read_timeout: float = Field(
        8.0, gt=0, description="Timeout between two reads of an upstream answer, in seconds."
    )
    upstream_timeout: float = Field(10.0, gt=0, description="Timeout for a whole upstream query, in seconds.")
    upstream_max_answer_bytes: int = Field(
        1024 * 1024,
        ge=1024,
        description="Largest upstream answer, in bytes; a larger one counts as unreadable. Parsing a hostile record "
        "blocks all other answers for 10 to 20 ms for each MiB.",
    )
    upstream_patience: float = Field(
        1.8, ge=0, description="Seconds to wait for the upstream before a stale record is served instead."
    )
    upstream_recheck: float = Field(
        30.0,
        ge=0,
        description="Seconds before the next upstream query for a name that is served stale after a failed query.",
    )
    upstream_rate: float = Field(10.0, gt=0, description="Upstream queries a second, for all clients together.")
    upstream_burst: float = Field(
        50.0, ge=1, description="Upstream queries that can be sent at once after an idle period."
    )
    upstream_allotment: int = Field(
        16,
        ge=1,
        le=1_000,
        description="Most upstream queries for which one process reserves tokens of a shared store at a time.",
    )
    upstream_max_concurrency: int = Field(16, ge=1, description="Upstream queries in progress at the same time.")
    upstream_reserved_share: float = Field(
        0.5, ge=0, le=0.95, description="Share of the budget that bulk and background queries cannot use."
    )
    upstream_queue_patience: float = Field(
        5.0, ge=0, description="Seconds that a query for a person waits for the budget before the answer is 503."
    )
    upstream_breaker_failures: int = Field(
        10, ge=1, description="Consecutive names for which the upstream failed before the circuit breaker opens."
    )
    upstream_breaker_cooldown: float = Field(
        15.0, gt=0, description="Seconds that the circuit breaker stays open before one query probes the upstream."
    )
    upstream_pause_first: float = Field(
        60.0,
        gt=0,
        description="Longest first pause after a 429 or 503 with Retry-After, in seconds. The limit doubles with each "
        "further one until the upstream answers.",
    )
    upstream_pause_max: float = Field(
        3600.0, gt=0, description="Longest pause after any 429 or 503 with Retry-After, in seconds."
    )
    upstream_failure_ttl: float = Field(
        15.0,
        ge=0,
        description="Seconds before the next upstream query for a name that the upstream refused, or whose record is "
        "unreadable.",
    )
    upstream_failure_memory_bytes: int = Field(
        4 * 1024 * 1024, ge=0, description="Memory for the names whose queries failed, in bytes."
    )

    cache_ttl_floor: float = Field(0.0, ge=0, description="Shortest time that a record is fresh, in seconds.")
    cache_ttl_ceiling: float = Field(86400.0, ge=0, description="Longest time that a record is fresh, in seconds.")
    cache_negative_ttl: float = Field(60.0, ge=0, description='Seconds for which "not found" is cached.')
    cache_grace: float = Field(
        30 * 86400.0, ge=0, description="Seconds after the end of its TTL in which a record can be served stale."
    )
    cache_memory_bytes: int = Field(
        256 * 1024 * 1024, ge=0, description="Memory for cached records, in bytes, for each process."
    )

    store_url: str = Field(
        "sqlite:///var/doi-proxy.sqlite3",
        description="Where records are kept: `memory:`, `sqlite:///path`, `redis://…` or `valkey://…`.",
    )
    store_timeout: float = Field(0.1, gt=0, description="Timeout of a Valkey or Redis command, in seconds.")
    store_max_bytes: int = Field(
        20 * 1024**3, ge=1024 * 1024, description="Size of the SQLite store after which records are evicted, in bytes."
    )

    branding_name: str = Field(
        "doi-proxy",
        min_length=1,
        max_length=80,
        description="Name of this resolver in the header and the title of every page.",
        json_schema_extra=RELOADED,
    )
    branding_logo: Path | None = Field(
        None,
        description="Logo beside the name: a file .svg, .png, .webp or .jpg of at most 256 KiB.",
        json_schema_extra=RELOADED,
    )
    branding_accent: str = Field(
        "",
        description="Colour of links and buttons in the light scheme, such as `#0b5a73`. A colour without enough "
        "contrast is refused.",
        json_schema_extra=RELOADED,
    )
    branding_accent_dark: str = Field(
        "", description="Colour of links and buttons in the dark scheme.", json_schema_extra=RELOADED
    )
    branding_background: str = Field(
        "", description="Background of the pages in the light scheme.", json_schema_extra=RELOADED
    )
    branding_background_dark: str = Field(
        "", description="Background of the pages in the dark scheme.", json_schema_extra=RELOADED
    )
    branding_home_text: str = Field(
        "",
        description="Text below the heading of the home page, the same in all languages. The files in "
        "`branding_messages` have it for each language.",
        json_schema_extra=RELOADED,
    )
    branding_help_links: str = Field(
        "",
        description="Links in the header of every page: `Label = URL | Label = URL`.",
        json_schema_extra=RELOADED,
    )
    branding_search_links: str = Field(
        "Crossref = https://search.crossref.org/ | DataCite = https://commons.datacite.org/",
        description="Where the not-found page sends readers to search for the title: `Label = URL | Label = URL`. "
        "`{doi}` in a URL is the name.",
        json_schema_extra=RELOADED,
    )
    branding_imprint: str = Field(
        "", description="Address of the institution's imprint, linked in the footer.", json_schema_extra=RELOADED
    )
    branding_privacy: str = Field(
        "",
        description="Address of the institution's privacy statement, linked on `/privacy`.",
        json_schema_extra=RELOADED,
    )
    branding_footer: str = Field("", description="Text in the footer of every page.", json_schema_extra=RELOADED)
    branding_languages: str = Field(
        "en,de,fr,es",
        description="Languages of the pages, separated by commas. A browser that prefers none of them gets the first.",
        json_schema_extra=RELOADED,
    )
    branding_german_article: Literal["die", "der", "das"] = Field(
        "die", description="Article of the word DOI in German.", json_schema_extra=RELOADED
    )
    branding_templates: Path | None = Field(
        None,
        description="Folder of Jinja templates that replace or extend those of doi-proxy.",
        json_schema_extra=RELOADED,
    )
    branding_messages: Path | None = Field(
        None,
        description="Folder of language files such as `en.toml`, whose texts replace those of doi-proxy.",
        json_schema_extra=RELOADED,
    )

    admin_token: str | None = Field(
        None,
        description="Secret of at least 16 characters that operators send to the admin API; the API is off without it. "
        "Set it with DOI_PROXY_ADMIN_TOKEN_FILE.",
        json_schema_extra=SECRET,
    )
    admin_wrong_rate: float = Field(
        0.1, gt=0, description="Limit of one client's requests a second with a wrong token for the admin API."
    )
    admin_wrong_burst: float = Field(
        10.0, ge=1, description="Requests with a wrong token that one client can send to the admin API at once."
    )
    status_access: Literal["public", "networks", "admin"] = Field(
        "networks",
        description="Who can see `/status`: all clients, those in `status_networks`, or those with `admin_token`.",
    )
    status_networks: str = Field(
        "127.0.0.0/8 ::1",
        description="Networks whose clients can see `/status`, separated by spaces. A front proxy on this machine must "
        "send X-Forwarded-For, or all of its clients count as this machine.",
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

    @field_validator("status_networks")
    @classmethod
    def _check_networks(cls, value: str) -> str:
        for network in value.split():
            try:
                ip_network(network)
            except ValueError as error:
                raise ValueError(f"{network[:80]!r} is not a network such as 192.0.2.0/24: {error}") from error
        return value

    @field_validator("public_url", "upstream_url", "upstream_routes")
    @classmethod
    def _name_hosts(cls, value: str | None) -> str | None:
        """Refuse a URL without a host. The rest of the program parses URLs with urlsplit too."""
        for item in (value or "").split():
            url = item.partition("=")[2] if "=" in item.partition("://")[0] else item
            parts = urlsplit(url)
            if not parts.hostname or parts.port == 0:
                raise ValueError(f"the URL {redact(url)[:80]!r} has no host name")
        return value

    @model_validator(mode="after")
    def _share_a_store(self) -> Settings:
        if self.workers > 1 and self.store_url.startswith("memory:"):
            raise ValueError(
                "several workers cannot share the store 'memory:'; set store_url to sqlite:///path, redis:// or valkey://"
            )
        return self

    @model_validator(mode="after")
    def _need_a_token(self) -> Settings:
        if self.status_access == "admin" and self.admin_token is None:
            raise ValueError('status_access = "admin" needs admin_token; set DOI_PROXY_ADMIN_TOKEN_FILE')
        return self

    @property
    def upstream_urls(self) -> tuple[str, ...]:
        """The upstreams, in the order in which they are tried."""
        return tuple(self.upstream_url.split())

    @property
    def upstream_route_urls(self) -> dict[str, str]:
        """The upstream of each routed prefix."""
        return dict(route.split("=", 1) for route in self.upstream_routes.split())


def reloadable() -> frozenset[str]:
    """The settings that a running process reloads at SIGHUP. All others need a restart."""
    fields = Settings.model_fields.items()
    return frozenset(name for name, field in fields if field.json_schema_extra == RELOADED)


def mask_settings(settings: Settings, secrets: Collection[str] = ()) -> dict[str, str | None]:
    """The settings as text, with secrets masked. `secrets` are those that were read from secret files."""
    values = settings.model_dump(mode="json").items()
    return {
        name: None if value is None else MASK if is_secret(name) or name in secrets else redact(str(value))
        for name, value in values
    }


def load(flags: Mapping[str, Any], environment: Mapping[str, str] = os.environ, config: Path | None = None) -> Settings:
    """Read the settings from flags, environment and TOML file.

    Raises ConfigurationError, which names the setting, its source and the reason.
    """
    return build(read_values(flags, environment, config, Settings.model_fields))


def build(values: Mapping[str, SourcedValue]) -> Settings:
    """The settings from these values. Raises ConfigurationError for the first one that cannot be used."""
    settings, problems = validate(values)
    if settings is None:
        raise ConfigurationError(str(problems[0]))
    return settings


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that cannot be used. `name` is empty if several settings together are the problem."""

    name: str
    source: str
    message: str

    def __str__(self) -> str:
        return f"{self.source}: {self.message}" if self.source else self.message


def validate(values: Mapping[str, SourcedValue]) -> tuple[Settings | None, list[Problem]]:
    """The settings, or None and what is wrong with each value."""
    try:
        return Settings(**{name: one.value for name, one in values.items()}), []
    except ValidationError as error:
        return None, [_problem(one, values) for one in error.errors()]


def _problem(error: Any, values: Mapping[str, SourcedValue]) -> Problem:
    name = str(error["loc"][0]) if error["loc"] else ""
    one = values.get(name)
    write_name = _NAMES[one.origin] if one else str
    message = explain(error, Settings.model_fields, write_name)
    shown = one.shown if one and not is_secret(name) else ""
    return Problem(name, one.source if one else "", f"{message}{shown}")


def is_secret(name: str) -> bool:
    """Whether the value of a setting is never printed."""
    return name in Settings.model_fields and Settings.model_fields[name].json_schema_extra == SECRET


def table_and_key(name: str) -> tuple[str, str]:
    """The table of the TOML file that contains a setting, and its key there."""
    head, _, key = name.partition("_")
    return (head, key) if head in TABLES else (TABLES[0], name)


def _write_toml_name(name: str) -> str:
    table, key = table_and_key(name)
    return f"{key} in [{table}]"


#: The name of a setting in each kind of source.
_NAMES: Final = {"file": _write_toml_name, "environment": variable, "flag": flag_of}
