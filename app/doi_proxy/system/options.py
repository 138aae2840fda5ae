"""What the groups of settings have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, JsonValue, PrivateAttr

from doi_proxy.system.redaction import redact

#: Marks a setting that a running process reloads at SIGHUP.
RELOADED: Final[dict[str, JsonValue]] = {"reloaded": True}
#: Marks a setting that is reloaded, and whose value is never printed.
RELOADED_SECRET: Final[dict[str, JsonValue]] = {"reloaded": True, "secret": True}


#: The largest values of numbers, for settings that have no smaller limit of their own: more is a slip of the pen.
#: Seconds that something waits: an hour.
MAX_WAIT: Final = 3_600
#: Seconds for which something is kept: ten years.
MAX_LIFETIME: Final = 315_360_000
#: Events a second, and events at once.
MAX_RATE: Final = 1_000_000
#: Things of one process: connections, queries, lists.
MAX_COUNT: Final = 1_000_000
#: Names in a file or a list.
MAX_NAMES: Final = 100_000_000
#: Bytes of memory or of a disk: 100 TiB.
MAX_BYTES: Final = 100 * 1024**4

#: The address of a Unix socket. Its path has at most 107 bytes (Linux, unix(7)).
UNIX_ADDRESS: Final = re.compile(r"unix:/[!-~]{1,106}")
#: A host and a port.
_HOST_AND_PORT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_MAX_PORT: Final = 65_535
#: Characters of a label of a host name.
_MAX_LABEL: Final = 63


class Departed(NamedTuple):
    """A setting that left."""

    #: The setting that has its value now, unless that is set too. None if no setting has.
    successor: str | None
    remedy: str


#: The settings that left, each with what to do instead (docs/releases.md). One that is still set is a warning.
DEPRECATED: Final[Mapping[str, Departed]] = {
    "workers": Departed(None, "a service is one process; start more instances on its socket (docs/instances.md)"),
    "upstream_machines": Departed("instances", "set instances in its place"),
    "admin_listen": Departed("management_listen", "set management_listen in its place"),
}

#: What the environment variable of a setting begins with.
ENV_PREFIX: Final = "DOI_PROXY_"
#: The path of the TOML file. The flag --config wins over it.
CONFIG_VARIABLE: Final = "DOI_PROXY_CONFIG"


class SettingsGroup(BaseModel):
    """Some of the settings of one proxy."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    #: The tables of the TOML file. The setting `upstream_url` is `url` in `[upstream]`.
    tables: ClassVar[tuple[str, ...]] = ()


Group = TypeVar("Group", bound=SettingsGroup)


class Settings(SettingsGroup):
    """The settings of one proxy. assembly/settings adds the fields: those of the core and of each feature."""

    #: Where each setting was set that left; see DEPRECATED.
    _departed: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def departed(self) -> Mapping[str, str]:
        """Where each setting was set that left."""
        return self._departed

    if TYPE_CHECKING:
        # The settings of the core that features read. Their descriptions are in app/doi_proxy/assembly/settings.
        host: str
        port: int
        instances: int
        instance: str
        management_listen: tuple[str, ...]
        upstream_burst: float
        tls_cert: Path | None
        tls_key: Path | None
        trusted_proxies: tuple[str, ...]
        proxy_protocol: bool
        privacy_level: int
        mode: Literal["online", "sealed"]
        public_url: str | None
        express_lane: bool
        express_memory_bytes: int
        resolve: Literal["doi", "any"]
        store_url: str
        cache_memory_bytes: int
        cache_negative_ttl: float
        cache_ttl_ceiling: float
        cache_grace: float
        upstream_contact: str | None
        upstream_bootstrap: Path | None
        upstream_ca_bundle: Path | None
        upstream_verify: Literal["never", "when-asked", "lookups", "always"]
        upstream_private_servers: bool
        upstream_timeout: float
        upstream_max_concurrency: int
        upstream_rate: float
        upstream_breaker_failures: int
        upstream_breaker_cooldown: float

        upstream_url: tuple[str, ...]

        @property
        def upstream_route_urls(self) -> dict[str, str]:
            """The upstream of each routed prefix."""

    def group(self, kind: type[Group]) -> Group:
        """The settings of one feature, and nothing else."""
        return cast(Group, kind.model_construct(**{name: getattr(self, name) for name in kind.model_fields}))

    def value(self, name: str) -> Any:
        """The value of a setting of any feature. None if that feature is not installed."""
        return getattr(self, name, None)

    @classmethod
    def reloadable(cls) -> frozenset[str]:
        """The settings that a running process reloads at SIGHUP. All others need a restart."""
        fields = cls.model_fields.items()
        return frozenset(name for name, field in fields if field.json_schema_extra in (RELOADED, RELOADED_SECRET))

    @classmethod
    def is_secret(cls, name: str) -> bool:
        """Whether the value of a setting is never printed."""
        field = cls.model_fields.get(name)
        return field is not None and field.json_schema_extra == RELOADED_SECRET

    @classmethod
    def table_and_key(cls, name: str) -> tuple[str, str]:
        """The table of the TOML file that contains a setting, and its key there."""
        head, _, key = name.partition("_")
        return (head, key) if head in cls.tables else (cls.tables[0], name)


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def flag_of(name: str) -> str:
    """The flag of a setting on the command line."""
    return "--" + name.replace("_", "-")


def is_host_and_port(address: str) -> bool:
    """Whether an address has the form `host:port`, with an IPv6 address in brackets."""
    found = _HOST_AND_PORT.fullmatch(address)
    return found is not None and int(found["port"]) <= _MAX_PORT


def require_host(url: str) -> None:
    """Refuse a URL without a host, or whose host has an empty or too long label (RFC 1035, section 2.3.4).

    The rest of the program parses URLs with urlsplit too. Raises ValueError.
    """
    if url.startswith("hdl:") and not url.startswith("hdl://"):
        return  # the root, or a file
    parts = urlsplit(url)
    labels = (parts.hostname or "").removesuffix(".").split(".")
    if parts.port == 0 or not all(0 < len(label) <= _MAX_LABEL for label in labels):
        raise ValueError(f"the URL {redact(url)[:80]!r} has no host name that can be looked up")


def require_no_secret(url: str) -> None:
    """Refuse a secret in a URL that clients or upstreams get. Raises ValueError."""
    if (masked := redact(url)) != url:
        raise ValueError(
            f"the URL {masked[:80]!r} has a user, a password or a secret parameter, and others read it; leave that out"
        )


def require_networks(items: Iterable[str]) -> None:
    """Refuse what is neither an address nor a network. Raises ValueError."""
    for item in items:
        try:
            ip_network(item)
        except ValueError as error:
            raise ValueError(f"{item[:80]!r} is not a network such as 192.0.2.0/24: {error}") from error
