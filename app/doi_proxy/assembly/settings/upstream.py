"""The upstream handle API, and how gently it is queried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, create_model, field_validator, model_validator

from doi_proxy.assembly.features import installed
from doi_proxy.server.listening import UNIX
from doi_proxy.system import options
from doi_proxy.system.options import MAX_BYTES, MAX_LIFETIME, Duration, SettingsGroup, Size, TextList, redact
from doi_proxy.system.options import Settings as Root

#: The smallest store that can be set, in bytes.
MIN_STORE_BYTES: Final = 1024 * 1024


class CacheSettings(SettingsGroup):
    """How long records are kept, and where."""

    cache_ttl_floor: Duration = Field(
        0.0,
        ge=0,
        le=MAX_LIFETIME,
        description="Shortest time that a record is fresh. Raise it if records with short TTLs use up the budget.",
    )
    cache_ttl_ceiling: Duration = Field(
        86400.0,
        ge=0,
        le=MAX_LIFETIME,
        description="Longest time that a record is fresh. Lower it if a changed target must be seen sooner.",
    )
    cache_negative_ttl: Duration = Field(
        60.0,
        ge=0,
        le=MAX_LIFETIME,
        description='Time for which "not found" is cached. Lower it if names are requested right after they are '
        "registered.",
    )
    cache_grace: Duration = Field(
        30 * 86400.0,
        ge=0,
        le=MAX_LIFETIME,
        description="Time after the end of its TTL in which a record can be served stale. Raise it where outages "
        "are long, and lower it if an old target is worse than none.",
    )
    cache_memory_bytes: Size = Field(
        256 * 1024 * 1024,
        ge=0,
        le=MAX_BYTES,
        description="Memory for cached records, for each process. Change it with the memory of the machine.",
    )
    store_url: str = Field(
        "sqlite:///var/doi-proxy.sqlite3",
        description="Where records are kept: `memory:`, `sqlite:///path`, or a Valkey or Redis server "
        "(`valkey://host/0`, `valkey+unix:///path`, `valkey+cluster://host1,host2`, "
        "`valkey+sentinel://host1,host2/name`; docs/valkey.md). Change it if several machines share "
        "the records, or another disk keeps them.",
    )
    store_max_bytes: Size = Field(
        20 * 1024**3,
        ge=MIN_STORE_BYTES,
        le=MAX_BYTES,
        description="Size of the SQLite store, with its write-ahead log, above which records are evicted. The file "
        "grows by at most half of the disk space that is free at the start or is freed later. Lower it if other "
        "programs need the disk.",
    )


class ServerSettings(options.SettingsGroup):
    """The server: addresses, certificates, logs, and which names are resolved."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on; `::` serves IPv6 and IPv4, and `unix:/run/doi-proxy/http.sock` a front "
        "proxy on this machine. Change it if clients or a front proxy on another machine connect.",
    )
    port: int = Field(
        8000, ge=0, le=65535, description="Port to listen on. Change it if another program has this port."
    )
    instances: int = Field(
        1,
        ge=1,
        le=1_000,
        description="How many instances share the store and the upstream's budget, on all machines together. Each has "
        "an equal part of `upstream_rate`, `upstream_burst` and `upstream_max_concurrency`; with a Valkey store, the "
        "instances count their queries there, and the parts hold while it is away. Change it with their number.",
    )
    instance: str = Field(
        "",
        max_length=40,
        description="Name of this instance in /status, /readyz, /metrics and the log. Set it if there are several; the "
        "unit of the package does.",
    )
    management_listen: TextList = Field(
        (),
        description="Addresses at which operators reach this instance alone: a host and a port such as "
        "`127.0.0.1:8101`, or a socket such as `unix:/run/doi-proxy/1.sock`. Everything is served there too, without "
        "TLS, and no front proxy is trusted. The admin API is then nowhere else. At a socket, its GET needs no token: "
        "who may open the socket may read. Set it if several instances share a port, or to keep the admin API from "
        "the address of readers.",
    )
    tls_cert: Path | None = Field(
        None,
        description="PEM file with the certificate chain, to serve HTTPS without a front proxy. Set it if there "
        "is no front proxy.",
        json_schema_extra=options.RELOADED,
    )
    tls_key: Path | None = Field(
        None,
        description="PEM file with the certificate's private key. Set it with `tls_cert`.",
        json_schema_extra=options.RELOADED,
    )
    trusted_proxies: TextList = Field(
        ("127.0.0.1",),
        description="Addresses and networks of front proxies whose X-Forwarded-For and X-Forwarded-Proto are "
        "trusted; `*` trusts every address. Change it if the front proxy is on another machine.",
        json_schema_extra=options.RELOADED,
    )
    proxy_protocol: bool = Field(
        False,
        description="Every connection to the HTTP listener begins with a header of the PROXY protocol, version 1 or 2, "
        "which names the client. Connections without it are closed, and only `trusted_proxies` may name a client. "
        "Set it if the front proxy passes TCP on and adds no X-Forwarded-For.",
    )
    mode: Literal["online", "sealed"] = Field(
        "online",
        description="In mode `online` the upstream is queried. In mode `sealed` it is not, and a name outside the "
        "store gets 504. Change it where no upstream can be reached.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="Lowest severity that is logged. Change it to `debug` while you look for a fault.",
        json_schema_extra=options.RELOADED,
    )
    log_format: Literal["text", "json"] = Field(
        "text",
        description="Format of the program's log on standard error: `text`, or `json` with one object a line. "
        "Change it if a program reads the log.",
    )
    privacy_level: int = Field(
        2,
        ge=0,
        le=3,
        description="What the access log records of a request: 0 address, name and query; 1 network and name; 2 "
        "name only; 3 none of them. Lower it if you may record who reads what, and raise it if even "
        "the names are confidential.",
    )
    max_connections: int = Field(
        0,
        ge=0,
        le=options.MAX_COUNT,
        description="Open client connections of one instance; `0` for as many as the limit of open files "
        "allows. Set it to bound the memory that connections take.",
    )
    public_url: str | None = Field(
        None,
        pattern=r"^(?i:https?)://[^?#\s]+$",
        description="This resolver's own URL as browsers see it, with the sub-path if there is one. If it is not "
        "set, redirects to this resolver use the scheme and `Host` of the request. Set it for every "
        "service behind a front proxy.",
    )
    resolve: Literal["doi", "any"] = Field(
        "doi",
        description="Names that pages resolve: `doi` answers 400 for a handle that is not a DOI name, `any` "
        "resolves it. Change it to resolve handles of other prefixes on pages too.",
    )
    express_lane: bool = Field(
        True,
        description="Send repeated simple requests a prepared answer. The bytes are the same as without it. Turn "
        "it off to compare answers and speed.",
    )
    express_memory_bytes: Size = Field(
        128 * 1024 * 1024,
        ge=0,
        le=options.MAX_BYTES,
        description="Memory for prepared answers, in addition to the memory tier. Change it with the memory of "
        "the machine.",
    )

    @field_validator("host")
    @classmethod
    def _check_socket(cls, value: str) -> str:
        if value.startswith(UNIX) and not options.UNIX_ADDRESS.fullmatch(value):
            raise ValueError(f"{value[:120]!r} is not a socket; write it as unix:/run/doi-proxy/http.sock")
        return value

    @field_validator("management_listen")
    @classmethod
    def _check_management(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            if not options.is_host_and_port(address) and not options.UNIX_ADDRESS.fullmatch(address):
                raise ValueError(
                    f"{address[:120]!r} is not an address to listen on; write it as 127.0.0.1:8101, [::1]:8101 or "
                    "unix:/run/doi-proxy/1.sock"
                )
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        options.require_networks(item for item in value if item != "*")
        return value

    @field_validator("public_url")
    @classmethod
    def _name_public_host(cls, value: str | None) -> str | None:
        if value is not None:
            options.require_host(value)
            options.require_no_secret(value)
            if "%" in urlsplit(value).path:
                raise ValueError(
                    "the path has an escape (%), which front proxies decode before they compare paths; leave it out"
                )
            # The case of scheme and host does not matter (RFC 3986, section 6.2.2.1). They are compared in lower case.
            parts = urlsplit(value)
            value = parts._replace(netloc=parts.netloc.lower()).geturl()
        return value

    @model_validator(mode="after")
    def _keep_tls_off_sockets(self) -> Self:
        if self.tls_cert is not None and self.host.startswith(UNIX):
            raise ValueError("tls_cert: a Unix socket has no TLS; the front proxy on this machine has the certificate")
        return self


#: A URL of an HTTP API, whose scheme has any letter case (RFC 3986, section 3.1), or of handle servers.
_UPSTREAM: Final = re.compile(r"(?i:https?)://[^?#\s]+|hdl:(//[^/?#\s@]+|(/[^/?#\s][^?#\s]*)?(\?[0-9A-Fa-f.:=&]+)?)")
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
    # Seconds of the rate that are saved up while no query is sent, so the links of a page are looked up together.
    upstream_burst: float = Field(
        default_factory=lambda known: min(max(1.0, 5.0 * known["upstream_rate"]), float(options.MAX_RATE)),
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


# pydantic lists the fields of the last class first.
class CoreSettings(CacheSettings, UpstreamSettings, ServerSettings, Root):
    """The settings of the core."""

    tables = ("server", "upstream", "cache", "store")


_GROUPS: Final = tuple(feature.settings for feature in installed() if feature.settings is not None)

if TYPE_CHECKING:

    class Settings(CoreSettings):
        """The settings of one proxy: a value for each setting of the core and of the installed features."""

        def __init__(self, **values: Any) -> None: ...

else:
    Settings = create_model(
        "Settings",
        __base__=(*reversed(_GROUPS), CoreSettings),
        __module__=__name__,
        __doc__="The settings of one proxy: a value for each setting of the core and of the installed features.",
    )
    # Several features can have settings in one table.
    Settings.tables = tuple(
        dict.fromkeys((*CoreSettings.tables, *(name for group in _GROUPS for name in group.tables)))
    )
