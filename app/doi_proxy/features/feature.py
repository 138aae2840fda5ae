"""What a feature is: one frozen value in the file feature.py of its folder, which app/doi_proxy/assembly opens.

A feature imports the core, and another feature only if its `needs` name it. Deleting the folder of a feature, and of
those that need it, leaves a program that works without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from doi_proxy.errors import ConfigurationError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_names.name import HandleName
    from doi_proxy.cache.tiered import TieredStore
    from doi_proxy.endpoints.operators import OperatorGate
    from doi_proxy.features.check import Check, Finding
    from doi_proxy.features.options import Settings
    from doi_proxy.features.source_context import SourceContext
    from doi_proxy.resolver.destination import Destinations
    from doi_proxy.resolver.observer import ResolutionObserver
    from doi_proxy.resolver.prefix_chain import PrefixChain
    from doi_proxy.resolver.resolver import Resolver
    from doi_proxy.server.prepared_answers import PreparedAnswers
    from doi_proxy.sharing.memory import SharedMemory, Use
    from doi_proxy.upstream.guard import RecordQuery
    from doi_proxy.upstream.routed import Upstream
    from doi_proxy.web.header import Header
    from doi_proxy.web.operations import Face
    from doi_proxy.web.pages import Link
    from doi_proxy.web.section import Section
    from doi_proxy.web.stage import Stage, Stages
    from handle_protocol.record import Record

Part = TypeVar("Part")


class Service:
    """What lives beside requests. It is started in the order of the features, and stopped in reverse."""

    async def start(self) -> None:
        """Called before the first request."""

    async def run(self) -> None:
        """Called in a task of its own, which is cancelled at the end, while the cache is open."""

    def tick(self) -> None:
        """Called every second."""

    def ready(self) -> Mapping[str, Any]:
        """What /readyz shows about this service: words, or members of their own, without paths and messages."""
        return {}

    async def stop(self) -> None:
        """Called after the last request, when the parts of the core are closed."""


@dataclass(frozen=True, slots=True)
class CounterData:
    """A counter of a feature, with at most one label and the values that it can have. See docs/metrics.md."""

    name: str
    about: str
    label: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GaugeData:
    """A gauge of a feature. `mode` makes one value of those of all workers."""

    name: str
    about: str
    mode: Literal["livesum", "livemax", "livemostrecent"] = "livesum"


class Meter:
    """What counts for the features. This one counts nothing; the feature metrics has one that does."""

    def counter(self, data: CounterData) -> Callable[..., None]:
        """A function that increments the counter, given the value of its label if it has one, and an amount."""
        return _count_nothing

    def gauge(self, data: GaugeData, read: Callable[[], float]) -> None:
        """Read the gauge before each scrape."""


def _count_nothing(*_: object) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a feature can know about this service, from the settings of the core."""

    version: str
    #: "online" or "sealed".
    mode: str
    public_url: str | None
    store_url: str
    privacy_level: int
    trusted_proxies: tuple[str, ...]
    #: The budget's tokens a second.
    upstream_rate: float
    #: Seconds for which an expired record can be served.
    grace: float


@dataclass(frozen=True, slots=True)
class ClientShares:
    """The number of clients, and how many of them sent half and nine tenths of the requests.

    `largest` is the share of the busiest client, 0 to 1; None without a request.
    """

    clients: int
    half: int
    nine_tenths: int
    largest: float | None


@dataclass(frozen=True, slots=True)
class Core:
    """The parts of the core that features build on."""

    cache: TieredStore
    upstream: Upstream
    resolver: Resolver
    prefixes: PrefixChain
    destinations: Destinations
    link: Link
    #: The tokens of the upstream's budget, those of other processes included.
    read_tokens: Callable[[], Awaitable[float]]
    #: The prepared answers, once there are some.
    prepared: list[PreparedAnswers]

    def forget_prepared(self) -> None:
        """Drop the prepared answers, because something besides the records has changed."""
        for answers in self.prepared:
            answers.clear()


@dataclass(frozen=True, slots=True)
class Observers:
    """The observers of the core's answers, queries and failures. `upstream` returns that of an upstream, by number."""

    resolver: ResolutionObserver | None = None
    upstream: Callable[[int], RecordQuery] | None = None
    store: Callable[[str], None] | None = None
    #: The observer of the messages to the handle servers of an upstream, by its number.
    exchanges: Callable[[int], Any] | None = None


class Reloads(Protocol):
    """Reloads of the settings by SIGHUP or the admin API."""

    draining: bool
    request_reload: Callable[[], None] | None
    #: What the workers of this machine share besides files. Empty for a process alone.
    memories: Mapping[Use, SharedMemory]

    def announce_change(self) -> None:
        """Let the other workers read the files that all share, which they otherwise do within a second."""

    def on_change(self, follow: Callable[[], None]) -> None:
        """Call `follow` after another worker has changed a file that the workers share."""

    def show_settings(self) -> dict[str, Any]:
        """The settings in force, with secrets masked."""

    def on_reload(self, apply: Callable[[Any], None], *names: str) -> None:
        """Call `apply` with the new settings at each reload. `names` are those that it uses.

        It raises ConfigurationError if it cannot use them, and then changes nothing.
        """


class Context:
    """What a feature is opened with. `clock` is in seconds since the epoch, `chance` is at least 0 and below 1."""

    def __init__(
        self, settings: Settings, facts: Facts, reloads: Reloads, clock: Callable[[], float], shared_folder: Path | None
    ) -> None:
        """`shared_folder` is where the workers of this machine share files. None for a process alone."""
        self.settings = settings
        self.facts = facts
        self.reloads = reloads
        self.clock = clock
        self._shared_folder = shared_folder
        #: Counts for the features.
        self.meter = Meter()
        #: The services of the features that have been opened, and the gates of operators.
        self.services: list[Service] = []
        #: The routes of the JSON endpoints of features. They are there when routes are added.
        self.own_routes: tuple[str, ...] = ()
        self.gates: list[OperatorGate] = []
        #: Counts a request of the client at an address, as Stage.admit does: for a page that refuses in its own words.
        self.admit: Callable[[str], None] = _count_nothing
        #: Denies a network for some seconds and returns the end. None without the feature limits.
        self.deny: Callable[[str, float], float] | None = None
        #: The end of each denial, by its network, in seconds since the epoch.
        self.read_denials: Callable[[], Mapping[str, float]] = dict
        #: Records an event for `/status`: its kind, its count and its detail. See EventKind of the feature status.
        self.record_event: Callable[..., None] = _count_nothing
        #: The country of a client's address, as an ISO 3166 code. None if it is unknown.
        self.find_country: Callable[[str], str | None] = lambda address: None
        #: The headers that a record adds to the redirect of its name.
        self.read_headers: Callable[[Record, HandleName], Sequence[Header]] | None = None
        #: How requests are spread over clients.
        self.read_shares: Callable[[], ClientShares] = lambda: ClientShares(0, 0, 0, None)
        self._provided: dict[type, object] = {}
        self._core: list[Core] = []

    @property
    def core(self) -> Core:
        """The parts of the core. They are there when `open` of a feature is called."""
        return self._core[0]

    def use_core(self, core: Core) -> None:
        """Let features find the parts of the core."""
        self._core = [core]

    def shared_file(self, name: str) -> Path | None:
        """A file that the workers of this machine share until the service ends, None for a process alone."""
        return None if self._shared_folder is None else self._shared_folder / name

    @property
    def shared_folder(self) -> Path | None:
        """Where the workers of this machine share files."""
        return self._shared_folder

    def provide(self, part: object) -> None:
        """Let other features find a part by its class."""
        self._provided[type(part)] = part

    def find(self, kind: type[Part]) -> Part | None:
        """What another feature provides. None if that feature is switched off or not installed."""
        found = self._provided.get(kind)
        return found if isinstance(found, kind) else None


@dataclass(frozen=True, slots=True)
class Opened:
    """What an open feature adds."""

    stages: Sequence[Stage] = ()
    sections: Sequence[Section] = ()
    services: Sequence[Service] = ()
    #: Each adds routes to the application of FastAPI.
    routes: Sequence[Callable[[FastAPI, Face], None]] = ()
    #: JSON endpoints for which the limits of clients hold, each with its route.
    own_api: Mapping[bytes, str] = field(default_factory=dict)
    #: Paths whose answers no page of another site may read.
    private: Sequence[bytes] = ()
    #: What answers the paths of operators, behind a check of its own.
    gates: Sequence[OperatorGate] = ()
    #: Each adds routes to the application behind that gate, if there is one, by the path that the gate then answers for
    #: a request with a token.
    operator_routes: Mapping[bytes, Callable[[FastAPI, Face], None]] = field(default_factory=dict)
    #: Builds the application of a further listener, given the stages and the server's data about its connections. The
    #: key is the setting with its address.
    listeners: Mapping[str, Callable[[Stages, object], object]] = field(default_factory=dict)


NOTHING: Final = Opened()


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of pip, and the modules of its libraries."""

    name: str
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpstreamKind:
    """The upstreams of one URL scheme."""

    #: Opens the one at a URL. Raises ConfigurationError.
    open: Callable[[Settings, str, SourceContext], Any]
    #: What `doi-proxy doctor --upstream` says about it.
    examine: Callable[[Settings, str], Coroutine[Any, Any, list[Finding]]]
    #: Whether its answers can be signed.
    is_signed: bool = False


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature. `needs` names the features that it imports."""

    name: str
    #: What it does, in one line: docs/architecture.md lists it.
    summary: str
    needs: tuple[str, ...] = ()
    #: The libraries that it cannot do without. FEATURE itself imports none of them.
    extra: Extra | None = None
    #: Whether the settings switch it on.
    is_on: Callable[[Settings], bool] = lambda settings: True
    #: Opens what observes the core, before the core is built.
    observe: Callable[[Context], Observers] | None = None
    #: Adds sources of answers that go before the cache, once the core is built. Commands have them too.
    add_sources: Callable[[Context], None] | None = None
    #: Opens the rest of the feature, for a service.
    open: Callable[[Context], Opened] | None = None
    #: Facts for each page, by template: a sample. The templates are in its folder `texts`.
    samples: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    #: Finds what is wrong with its settings before a start, whether they switch it on or not.
    check: Check | None = None
    #: Upstreams, by the scheme of their URLs. The core opens http and https.
    upstreams: Mapping[str, UpstreamKind] = field(default_factory=dict)


def require_libraries(feature: Feature) -> None:
    """Raise ConfigurationError if a library that the feature needs is not installed."""
    extra = feature.extra
    if extra is None:
        return
    for library in extra.libraries:
        if not _is_installed(library):
            raise ConfigurationError(
                f"the feature {feature.name} needs the package {library}, which is not installed; run: "
                f"pip install 'doi-proxy[{extra.name}]'"
            )


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:
        # The package around it is missing too.
        return False


def required(part: Part | None) -> Part:
    """A part that a feature provides which is always open."""
    if part is None:
        raise LookupError("a feature uses a part of another one that is not open")
    return part
