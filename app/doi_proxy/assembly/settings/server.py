"""The server: addresses, certificates, logs, and which names are resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from doi_proxy.server.listening import UNIX
from doi_proxy.system import options
from doi_proxy.system.setting_values import Size, TextList


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
