"""Every setting, its unit and its default: environment over TOML file over defaults; flags over all.

`DOI_PROXY_UPSTREAM_URL=…` in the environment, `url` in the table `[upstream]` of the TOML file and
`--upstream-url` on the command line are the same setting.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from app.errors import ConfigurationError
from app.redaction import redact

ENV_PREFIX: Final = "DOI_PROXY_"
#: Names the TOML file, if the flag --config does not.
CONFIG_VARIABLE: Final = "DOI_PROXY_CONFIG"
#: The tables of the TOML file; a setting `upstream_url` is `url` in `[upstream]`.
TABLES: Final = ("server", "client", "upstream", "cache", "store", "web")
#: Marks a setting that SIGHUP puts into force in a running process.
RELOADED: Final[dict[str, JsonValue]] = {"reloaded": True}


class Settings(BaseModel):
    """The settings of one proxy."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; `::` serves IPv6 and IPv4.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on.")
    workers: int = Field(1, ge=1, le=64, description="Worker processes; they share one SQLite store or one Valkey.")
    drain_seconds: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="Seconds at the end for which requests are still answered while `/readyz` is 503 already.",
        json_schema_extra=RELOADED,
    )
    grace_seconds: float = Field(
        8.0,
        ge=0,
        le=3600,
        description="Seconds at the end that requests under way get to finish after the port is closed.",
        json_schema_extra=RELOADED,
    )
    tls_cert: Path | None = Field(
        None,
        description="PEM file with the certificate chain, to serve HTTPS directly.",
        json_schema_extra=RELOADED,
    )
    tls_key: Path | None = Field(
        None, description="PEM file with the certificate's private key.", json_schema_extra=RELOADED
    )
    trusted_proxies: str = Field(
        "127.0.0.1",
        description="Addresses of front proxies whose X-Forwarded-For and -Proto are believed, comma separated; "
        "`*` for all.",
        json_schema_extra=RELOADED,
    )
    seed: Path | None = Field(
        None, description="NDJSON file of records loaded at start as already expired; none unless given."
    )
    mode: Literal["online", "sealed"] = Field(
        "online",
        description="Whether the upstream is asked: `online` asks it, `sealed` never does and answers 504 to names "
        "that are not in the store.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest severity that is logged.", json_schema_extra=RELOADED
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of the program's own lines on standard error: `text`, or `json`, one object a line."
    )
    access_log: Literal["off", "json", "text"] = Field(
        "off", description="Lines about requests on standard output: none, JSON objects, or words `name=value`."
    )
    privacy_level: int = Field(
        2,
        ge=0,
        le=3,
        description="What lines about requests hold: 0 address, name and query, 1 network of the address and name, "
        "2 name alone, 3 neither.",
    )

    max_connections: int = Field(
        0,
        ge=0,
        description="Open client connections of one worker process; 0 takes as many as the limit of open files allows.",
    )
    client_max_connections: int = Field(
        256,
        ge=1,
        description="Open connections of one client network; the addresses in trusted_proxies have no such limit.",
    )
    client_head_timeout: float = Field(
        15.0, gt=0, description="Seconds for the head of a request, from its first byte or from the connection."
    )
    client_body_timeout: float = Field(
        30.0, gt=0, description="Seconds for which the body of a request may not make progress."
    )
    client_write_timeout: float = Field(
        30.0, gt=0, description="Seconds for which a client may read nothing of its answer."
    )
    client_idle_timeout: float = Field(
        75.0, gt=0, description="Seconds for which a connection may be idle; longer than nginx keeps one (60)."
    )
    client_ipv4_prefix: int = Field(
        24, ge=8, le=32, description="Length of the IPv4 prefix that counts as one client, such as a campus network."
    )
    client_ipv6_prefix: int = Field(
        64, ge=16, le=128, description="Length of the IPv6 prefix that counts as one client: a household has a /64."
    )

    client_rate: float = Field(
        0.0, ge=0, description="Requests a second of one client, answers from memory among them; `0` for any number."
    )
    client_burst: float = Field(
        100.0, ge=1, description="Requests of one client in one second after a quiet time, where they are counted."
    )
    client_allow_file: Path | None = Field(
        None,
        description="File of networks that `client_rate` and `bypass_rate` do not limit, one a line; read again at "
        "SIGHUP.",
    )
    client_deny_file: Path | None = Field(
        None, description="File of networks that are answered 403, one a line; read again at SIGHUP."
    )
    client_most_waiting: int = Field(
        100, ge=1, description="Upstream questions of one client that may wait; a further one is answered 429."
    )

    public_url: str | None = Field(
        None,
        pattern=r"^https?://[^?#\s]+$",
        description="This resolver's own URL as browsers see it, also with a sub-path; "
        "without it, the scheme and Host of each request.",
    )
    resolve: Literal["doi", "any"] = Field(
        "doi", description="What pages resolve: `doi` answers 400 to handles that are no DOIs, `any` resolves them."
    )
    country_database: Path | None = Field(
        None,
        description="MMDB file that tells the country of an address, for records that choose by it; none is shipped.",
    )
    express_lane: bool = Field(
        True, description="Answer hot, plain requests from prepared bytes; the same bytes as without."
    )
    express_memory_bytes: int = Field(
        128 * 1024 * 1024, ge=0, description="Size of the prepared answers, in bytes, besides the memory tier."
    )
    record_headers: str = Field(
        "",
        pattern=r"^[A-Za-z0-9-]*(\s*,\s*[A-Za-z0-9-]+)*$",
        description="Names of headers that a record's 10320/headers values may set on its redirect, comma separated; "
        "names that steer browsers, front proxies or the connection are refused.",
    )
    web_contact: str | None = Field(
        None, description="Whom people may ask about this resolver: an e-mail address, a URL or words, on every page."
    )
    web_max_age: float = Field(
        300.0, ge=0, description="Greatest max-age sent to browsers, in seconds, so that a corrected target is seen."
    )

    bypass_rate: float = Field(
        1.0, gt=0, description="Questions a second that one client may ask past the cache (auth, cert)."
    )
    bypass_burst: float = Field(60.0, ge=1, description="Such questions of one client at once after a quiet time.")

    upstream_url: str = Field(
        "https://doi.org",
        pattern=r"^https?://[^?#\s]+(\s+https?://[^?#\s]+)*$",
        description="Base URL of the upstream handle API; several, separated by blanks, are asked in this order.",
    )
    upstream_routes: str = Field(
        "",
        pattern=r"^(\s*[^\s=]+=https?://[^?#\s]+)*\s*$",
        description="Upstreams of single prefixes, as `10.5072=https://handle.test.example` separated by blanks.",
    )
    upstream_contact: str | None = Field(
        None, description="Contact in the User-Agent sent upstream: a URL or mailto: address of this institution."
    )
    upstream_literal_slashes: bool = Field(
        False, description="Send slashes of a suffix as `/`, for servers or front proxies that refuse `%2F`."
    )
    upstream_ca_bundle: Path | None = Field(
        None, description="PEM file of a private certificate authority that is trusted besides the usual ones."
    )
    upstream_http2: bool = Field(
        False, description="Use HTTP/2 where the upstream offers it. It takes six times the processor time of HTTP/1.1."
    )
    upstream_connect_timeout: float = Field(3.0, gt=0, description="Seconds to connect to the upstream.")
    upstream_read_timeout: float = Field(8.0, gt=0, description="Seconds between two pieces of an upstream answer.")
    upstream_timeout: float = Field(10.0, gt=0, description="Seconds for a whole upstream question.")
    upstream_max_answer_bytes: int = Field(
        1024 * 1024,
        ge=1024,
        description="Largest upstream answer, in bytes; a larger one counts as unreadable. Parsing a hostile record "
        "takes 10 to 20 ms for each MiB, during which nothing else is answered.",
    )
    upstream_patience: float = Field(
        1.8, ge=0, description="Seconds to wait for the upstream before a stale record is answered instead."
    )
    upstream_recheck: float = Field(
        30.0, ge=0, description="Seconds until a name whose question failed is asked again, while it is served stale."
    )
    upstream_rate: float = Field(10.0, gt=0, description="Upstream questions a second, for the whole institution.")
    upstream_burst: float = Field(50.0, ge=1, description="Upstream questions that may go at once after a quiet time.")
    upstream_max_concurrency: int = Field(16, ge=1, description="Upstream questions under way at the same time.")
    upstream_reserved_share: float = Field(
        0.5, ge=0, le=0.95, description="Share of the budget kept for people, before bulk and background questions."
    )
    upstream_queue_patience: float = Field(
        5.0, ge=0, description="Seconds a person's question waits for the budget before it is answered 503."
    )
    upstream_breaker_failures: int = Field(
        10, ge=1, description="Names in a row at which the upstream failed before it is left alone for a while."
    )
    upstream_breaker_cooldown: float = Field(
        15.0, gt=0, description="Seconds the upstream is left alone before one question tries it again."
    )
    upstream_pause_first: float = Field(
        60.0,
        gt=0,
        description="Longest pause, in seconds, that a 429 or 503 with Retry-After brings at first; each one that "
        "follows without an answer in between may last twice as long.",
    )
    upstream_pause_max: float = Field(
        3600.0, gt=0, description="Longest pause, in seconds, that a 429 or 503 with Retry-After ever brings."
    )
    upstream_failure_ttl: float = Field(
        15.0,
        ge=0,
        description="Seconds for which a name that the upstream refused, or whose record is unreadable, is answered "
        "without another question.",
    )
    upstream_failure_memory_bytes: int = Field(
        4 * 1024 * 1024, ge=0, description="Size of the memory of names whose questions failed, in bytes."
    )

    cache_ttl_floor: float = Field(0.0, ge=0, description="Least time a record is fresh, in seconds.")
    cache_ttl_ceiling: float = Field(86400.0, ge=0, description="Greatest time a record is fresh, in seconds.")
    cache_negative_ttl: float = Field(60.0, ge=0, description='Seconds for which "not found" is kept.')
    cache_grace: float = Field(
        30 * 86400.0, ge=0, description="Seconds after its TTL for which a record may be served stale."
    )
    cache_memory_bytes: int = Field(256 * 1024 * 1024, ge=0, description="Size of the memory tier, in bytes.")

    store_url: str = Field(
        "sqlite:///var/doi-proxy.sqlite3",
        description="Where records are kept: `memory:`, `sqlite:///path`, `redis://…` or `valkey://…`.",
    )
    store_timeout: float = Field(0.1, gt=0, description="Seconds a Valkey or Redis server has to answer.")
    store_max_bytes: int = Field(
        20 * 1024**3, ge=1024 * 1024, description="Size of the SQLite store after which records are evicted, in bytes."
    )

    @field_validator("public_url", "upstream_url", "upstream_routes")
    @classmethod
    def _name_hosts(cls, value: str | None) -> str | None:
        """Each URL must name a host; urlsplit is what everybody else reads them by."""
        for given in (value or "").split():
            url = given.partition("=")[2] if "=" in given.partition("://")[0] else given
            parts = urlsplit(url)
            if not parts.hostname or parts.port == 0:
                raise ValueError(f"{redact(url)[:80]!r} names no host")
        return value

    @model_validator(mode="after")
    def _share_a_store(self) -> Settings:
        if self.workers > 1 and self.store_url.startswith("memory:"):
            raise ValueError("several workers need a store that they share: sqlite:///path, redis:// or valkey://")
        return self

    @property
    def upstream_urls(self) -> tuple[str, ...]:
        """The upstreams in the order in which they are asked."""
        return tuple(self.upstream_url.split())

    @property
    def upstream_route_urls(self) -> dict[str, str]:
        """The upstream of each routed prefix."""
        return dict(route.split("=", 1) for route in self.upstream_routes.split())

    def as_environment(self) -> dict[str, str]:
        """Every setting as an environment variable, for worker processes."""
        given = self.model_dump(mode="json")
        return {variable(name): str(value) for name, value in given.items() if value is not None}


def reloadable() -> frozenset[str]:
    """The settings that a running process puts into force at SIGHUP; all others need a restart."""
    fields = Settings.model_fields.items()
    return frozenset(name for name, field in fields if field.json_schema_extra == RELOADED)


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


@dataclass(frozen=True, slots=True)
class _Given:
    """A setting's value, where it comes from, and how an error shows it."""

    value: Any
    source: str
    secret: bool = False

    @property
    def shown(self) -> str:
        return "" if self.secret else f" (it is {redact(str(self.value))[:200]!r})"


def load(flags: Mapping[str, Any], environment: Mapping[str, str] = os.environ, config: Path | None = None) -> Settings:
    """The settings from flags, environment and TOML file. Raises ConfigurationError: which setting, from where, why."""
    path = config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    given: dict[str, _Given] = {}
    if path is not None:
        given |= {name: _Given(value, f"{path}: {name}") for name, value in _read_toml(path).items()}
    given |= _read_environment(environment)
    given |= {name: _Given(value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None}
    try:
        return Settings(**{name: one.value for name, one in given.items()})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        one = given.get(name)
        where = f"{one.source}: " if one else ""
        raise ConfigurationError(f"{where}{_reason(first)}{one.shown if one else ''}") from error


def _reason(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such setting"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _read_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    for key, value in environment.items():
        if not key.startswith(ENV_PREFIX) or key == CONFIG_VARIABLE:
            continue
        name = key.removeprefix(ENV_PREFIX).lower()
        secret = _is_file_of_secret(name)
        if secret:
            name = name.removesuffix("_file")
        if name in found:
            raise ConfigurationError(f"{variable(name)} and {variable(name)}_FILE are both set: remove one of them")
        found[name] = _Given(_read_secret(key, Path(value)) if secret else value, key, secret)
    return found


def names_from_files(environment: Mapping[str, str]) -> frozenset[str]:
    """The settings whose values are in files that NAME_FILE variables name: `doi-proxy config` shows none of them."""
    names = (key.removeprefix(ENV_PREFIX).lower() for key in environment if key.startswith(ENV_PREFIX))
    return frozenset(name.removesuffix("_file") for name in names if _is_file_of_secret(name))


def _is_file_of_secret(name: str) -> bool:
    # NAME_FILE holds the path of a file with the value: for secrets that must not be in the environment.
    return name.endswith("_file") and name not in Settings.model_fields


def _read_secret(key: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{key}: {path} cannot be read ({error})") from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: the settings file cannot be read ({error})") from error
    flat: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            flat |= {(name + "_" + key if name != "server" else key): inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat
