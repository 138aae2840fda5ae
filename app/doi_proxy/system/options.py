"""What the groups of settings have in common, the settings that have left, and the settings as features read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, PlainSerializer, PrivateAttr
from pydantic.fields import FieldInfo

#: Shown in place of a secret.
MASK: Final = "***"
#: Characters of another's text that a message repeats.
MAX_SHOWN: Final = 200
#: User and password of a URL (RFC 3986, section 3.2.1). They end at the last "@", as in the libraries' parsers. Before
#: the first slash is their usual place.
_AUTHORITY: Final = re.compile(r"://[^\s/]*@")
_USERINFO: Final = re.compile(r"://\S*@")
#: One parameter of a URL's query.
_PARAMETER: Final = re.compile(r"([?&;])([^=&;#\s]*)=[^&;#\s]*")
#: The path of an HTTP URL, and a segment of it that looks like a token: 20 characters or more, letters and digits, such
#: as in https://otel.example.org/v1/0123456789abcdef0123/traces.
_PATH: Final = re.compile(r"(?<=://)[^\s/?#\"']+(/[^\s?#\"']*)")
_TOKEN: Final = re.compile(r"(?<=/)(?=[\w~-]*[0-9])(?=[\w~-]*[A-Za-z])[\w~-]{20,}(?![^/])")
#: Words in the name of a parameter that holds a secret.
_SECRET_NAME: Final = re.compile(r"pass|pwd|secret|token|key|auth|cred|user", re.IGNORECASE)


def redact_value(value: Any) -> Any:
    """The value of a setting without the secrets in it: those of each text of a list."""
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def redact(text: str) -> str:
    """Mask the user, the password, the secret query parameters and the tokens in the path of the URLs in a text."""
    return _PATH.sub(lambda found: _TOKEN.sub(MASK, found[0]), _redact_account(text))


def _redact_account(text: str) -> str:
    # The usual place first: a password there may contain "?key=". Then parameters, whose values may contain "@".
    usual = _AUTHORITY.sub(f"://{MASK}@", text)
    return _USERINFO.sub(f"://{MASK}@", _PARAMETER.sub(_mask_parameter, usual))


def _mask_parameter(match: re.Match[str]) -> str:
    # Redis clients decode the names of parameters, so `p%61ssword` is a password too.
    return f"{match[1]}{match[2]}={MASK}" if _SECRET_NAME.search(unquote(match[2])) else match[0]


#: The longest number of a duration or a size, in characters.
_MAX_TEXT: Final = 40
_DURATION: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)[ ]*(ms|s|m|h|d|)")
_SECONDS: Final = {"d": Decimal(86_400), "h": Decimal(3_600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_SIZE: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)[ ]*(?:([KMGT])(?:i?B)?|B|)", re.IGNORECASE)
#: Powers of 1024, as nginx and systemd have them.
_BYTES: Final = {"T": 1024**4, "G": 1024**3, "M": 1024**2, "K": 1024}

_NOT_A_DURATION: Final = (
    "this is not a duration; write seconds as a number, or a number and a unit, such as 500ms, 10s, 15m, 12h or 30d"
)
_NOT_A_SIZE: Final = (
    "this is not a size; write bytes as a whole number, or a number and a unit, such as 64K, 256M, 1.5G or 2T"
)
_NOT_A_LIST: Final = (
    "this is not a list; separate its items by commas, or in a TOML file write an array of texts, such as "
    '["first", "second"]'
)


def read_duration(value: Any) -> Any:
    """Seconds, given a number, or a text such as `1.8s`, `15m` or `30d`. Raises ValueError.

    Another type, such as a boolean, is refused too.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _MAX_TEXT else None
    if found is None:
        raise ValueError(_NOT_A_DURATION)
    return float(Decimal(found[1]) * _SECONDS[found[2] or "s"])


def write_duration(seconds: float) -> str:
    """The shortest form with one unit that reads back as the same number of seconds, such as `30d` or `1.8s`."""
    # repr, because Decimal(1.8) has the digits of the binary fraction.
    exact = Decimal(repr(seconds))
    unit = next((unit for unit in ("d", "h", "m") if exact and exact % _SECONDS[unit] == 0), "s")
    return f"{_plain(exact / _SECONDS[unit])}{unit}"


def read_size(value: Any) -> Any:
    """Bytes, given a whole number, or a text such as `256M` or `1.5G` (powers of 1024). Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _MAX_TEXT else None
    if found is None:
        raise ValueError(_NOT_A_SIZE)
    exact = Decimal(found[1]) * _BYTES.get((found[2] or "").upper(), 1)
    if exact != int(exact):
        raise ValueError("this is not a whole number of bytes; write a size such as 1536K or 1.5M")
    return int(exact)


def write_size(size: int) -> str:
    """The form with the largest unit that divides it, such as `256M`."""
    unit = next((unit for unit, factor in _BYTES.items() if size and size % factor == 0), "")
    return f"{size // _BYTES.get(unit, 1)}{unit}"


def read_text_list(value: Any) -> Any:
    """The items of a list: an array, or a text that separates them by commas. Blanks around an item do not count."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(_NOT_A_LIST)
    items = tuple(item.strip() for item in value)
    for item in items:
        if "," in item:
            raise ValueError(f"the item {item[:80]!r} has a comma; write each item of the array as a text of its own")
    return tuple(item for item in items if item)


def write_list(items: Iterable[str]) -> str:
    """A list as one text, for an environment variable or a flag."""
    return ",".join(items)


def write_value(value: Any) -> str:
    """A value of a setting as text, given what `model_dump(mode="json")` has for it: for a variable, a flag, a page."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return _plain(Decimal(repr(value)))
    return write_list(value) if isinstance(value, list | tuple) else str(value)


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class WrittenForm:
    """Marks the type of a setting whose value has a written form."""

    kind: Literal["duration", "size", "list"]
    write: Callable[[Any], str]


def find_form(field: FieldInfo) -> WrittenForm | None:
    """The written form of a setting. None if it is read as any number or text."""
    return next((mark for mark in field.metadata if isinstance(mark, WrittenForm)), None)


def write_default(field: FieldInfo) -> str:
    """The default of a setting as people write it. Empty if it follows from another setting."""
    if field.default_factory is not None:
        return ""
    if field.default in (None, ()):
        return "not set by default"
    form = find_form(field)
    return f"default {(write_value if form is None else form.write)(field.default)}"


#: Seconds.
Duration = Annotated[
    float,
    BeforeValidator(read_duration),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
    WrittenForm("duration", write_duration),
]
#: Bytes.
Size = Annotated[
    int,
    BeforeValidator(read_size),
    PlainSerializer(write_size, return_type=str, when_used="json"),
    WrittenForm("size", write_size),
]
TextList = Annotated[tuple[str, ...], BeforeValidator(read_text_list), WrittenForm("list", write_list)]
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
    return found is not None and int(found["port"]) <= 65_535


def require_host(url: str) -> None:
    """Refuse a URL without a host, or whose host has an empty or too long label (RFC 1035, section 2.3.4).

    The rest of the program parses URLs with urlsplit too. Raises ValueError.
    """
    if url.startswith("hdl:") and not url.startswith("hdl://"):
        return  # the root, or a file
    parts = urlsplit(url)
    labels = (parts.hostname or "").removesuffix(".").split(".")
    # Characters of a label of a host name.
    if parts.port == 0 or not all(0 < len(label) <= 63 for label in labels):
        raise ValueError(f"the URL {redact(url)[:80]!r} has no host name that can be looked up")


def require_no_secret(url: str) -> None:
    """Refuse a secret in a URL that clients or upstreams get. Raises ValueError."""
    if (masked := _redact_account(url)) != url:
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
