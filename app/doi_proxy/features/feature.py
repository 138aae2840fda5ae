"""What a feature is: one class in the file feature.py of its folder, which app/doi_proxy/assembly opens.

A feature overrides what it needs. It imports the core, and another feature only if its `needs` name it. Deleting the
folder of a feature, and of those that need it, leaves a program that works without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from doi_names.errors import InvalidName, NotUTF8
from doi_names.name import HandleName
from doi_names.presentation import read_typed
from doi_proxy.errors import ConfigurationError
from doi_proxy.system.options import MAX_SHOWN, Settings, SettingsGroup

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.cache.tiered import TieredStore
    from doi_proxy.endpoints import OperatorGate
    from doi_proxy.list_formats.fair_lock import FairLock
    from doi_proxy.resolver.destination import Destinations
    from doi_proxy.resolver.prefix_chain import PrefixChain
    from doi_proxy.resolver.resolution import ResolutionObserver, TtlPolicy
    from doi_proxy.resolver.resolver import Resolver
    from doi_proxy.server.connections import Connections
    from doi_proxy.server.prepared_answers import PreparedAnswers
    from doi_proxy.store.file import Opener
    from doi_proxy.system.check import Check, EventLog, Finding, Inspection, Meter, Service
    from doi_proxy.upstream.budget import Budget, TokenBucket
    from doi_proxy.upstream.guard import RecordQuery, Upstream
    from doi_proxy.web.pages import Link
    from doi_proxy.web.redirect import Face
    from doi_proxy.web.stage import Admission, Encoder, Section, Stage, Stages


#: The value of --format that lets `cache import` find the format.
AUTO: Final = "auto"


class Stores(Protocol):
    """Opens the store of a proxy, which may be running. Each method raises ConfigurationError and StoreError.

    At the end of a job, the store is flushed, and a failure of it is raised.
    """

    def require(self) -> None:
        """Raise ConfigurationError if the file of the store is missing or out of reach. Opening would create one."""

    def open(self, *, read_only: bool = False) -> AbstractAsyncContextManager[TieredStore]:
        """The cache alone."""

    def open_online(self) -> AbstractAsyncContextManager[Core]:
        """A resolver that queries the upstream. Raises ConfigurationError if it is sealed."""

    def open_sealed(self, observers: Observers | None = None) -> AbstractAsyncContextManager[Core]:
        """A resolver that only reads the store."""

    def open_for_lists(self) -> AbstractAsyncContextManager[Core]:
        """A resolver for lists, in any mode, also with the store `memory:`."""

    def open_as_service(self) -> AbstractAsyncContextManager[Core]:
        """A resolver like that of a running proxy, with less memory. A failure of the store is a miss."""


class CommandContext(Protocol):
    """What a command gets. The command line, the environment and the file are read at the first use."""

    @property
    def settings(self) -> Settings:
        """The settings in force. Raises ConfigurationError."""

    @property
    def stores(self) -> Stores:
        """The store of the settings in force. Raises ConfigurationError."""

    def inspect(self, checks: Iterable[Check], *, offline: bool) -> list[Finding]:
        """What these checks, those of the core and those of the features find. Raises ConfigurationError."""

    @property
    def importers(self) -> Sequence[Importer]:
        """What `cache import` reads besides bundles."""

    def examine_upstreams(self) -> list[Finding]:
        """A note for each upstream and each transport, and an error for an upstream that does not answer."""

    def begin_logging(self) -> None:
        """Log to standard error, as a running proxy does."""

    def open_application(
        self, changes: Mapping[str, Any], *, read_only: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        """The ASGI application of the settings, with changes, without its services. Nothing serves it.

        What it stored is written at the end; with `read_only`, its store is not changed. Raises ConfigurationError.
        """

    @property
    def values(self) -> Any:
        """The text of each setting that has been set, with its source. Raises ConfigurationError."""

    def load(self) -> Any:
        """The settings, read again. Raises ConfigurationError."""


@dataclass(frozen=True, slots=True)
class Importer:
    """What `cache import` does with files of some formats. A feature offers it."""

    #: The values of --format that it reads.
    formats: tuple[str, ...]
    #: Imports a file of one of them, or AUTO, given the arguments of the command. Returns the exit status.
    run: Callable[[CommandContext, argparse.Namespace, str], int]
    #: The format of a file that begins so. None if it is of another one.
    detect: Callable[[bytes], str | None] = lambda head: None
    #: Whether it reads folders, each file in its own format.
    takes_folders: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words, what adds its arguments, and what runs it and returns the exit status."""

    name: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[CommandContext, argparse.Namespace], int]


def set_usage(command: argparse.ArgumentParser, flags: str) -> None:
    """Let the help show these flags of a command, and not the many flags of the settings."""
    command.usage = f"{command.prog} {flags} [--config FILE] [settings]"


def refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Refuse options that were given and do not belong to the file of the command. Raises ConfigurationError."""
    for option, value in options.items():
        if value:
            raise ConfigurationError(f"{option} {reason}")


def add_server(command: argparse.ArgumentParser, about: str = "the proxy; by default the one on this machine") -> None:
    """Add the argument that names a running proxy."""
    command.add_argument("--server", metavar="URL", help=about)


def add_format(command: argparse.ArgumentParser, about: str = "text for people, or one JSON object") -> None:
    """Add the argument for the form of the output."""
    command.add_argument("--format", choices=("text", "json"), default="text", help=f"{about} (default: text)")


def whole_number(text: str) -> int:
    """The value of a flag that is a whole number."""
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def read_argument(text: str) -> HandleName:
    """Read a name of the command line. Raises ConfigurationError."""
    try:
        if "\N{REPLACEMENT CHARACTER}" in text:
            raise NotUTF8
        return read_typed(text)
    except InvalidName as error:
        raise ConfigurationError(f"{text[:MAX_SHOWN]!r}: {error.message}") from error


def read_prefix(text: str | None) -> HandleName | None:
    """The value of --prefix. Raises ConfigurationError."""
    if not text:
        return None
    try:
        prefix = HandleName(text.rstrip("/"))
    except InvalidName as error:
        raise ConfigurationError(f"--prefix {text}: {error.message}") from error
    if not prefix.is_prefix:
        raise ConfigurationError(f"--prefix {text}: this is not a DOI prefix; a DOI prefix looks like 10.1000")
    return prefix


FeatureType = TypeVar("FeatureType", bound="Feature")
#: What an open feature adds: to the way of a request, to a page, beside requests, before the paths of operators, or
#: at a further address.
Part: TypeAlias = "Stage | Admission | Encoder | Section | Service | OperatorGate | Listener"


@dataclass(frozen=True, slots=True)
class Core:
    """The parts of the core that features build on."""

    cache: TieredStore
    upstream: Upstream
    resolver: Resolver
    prefixes: PrefixChain
    destinations: Destinations
    link: Link
    #: The prepared answers, once there are some.
    prepared: list[PreparedAnswers]
    #: The share of that budget for what no client requested.
    background: TokenBucket
    #: Counts for the features.
    meter: Meter
    #: One text is read at a time, whatever the number of requests. Clients take turns.
    text_turns: FairLock
    #: What the server keeps about the connections of this process. None for a command.
    connections: Connections | None = None

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
    #: Counts for the features.
    meter: Meter | None = None


class Reloads(Protocol):
    """Reloads of the settings by SIGHUP or the admin API."""

    draining: bool
    #: The reloads since the start, and whether something could not be used at the last one.
    reloads: int
    reload_failed: bool
    request_reload: Callable[[], None] | None

    def show_settings(self) -> dict[str, Any]:
        """The settings in force, with secrets masked."""

    def on_reload(self, apply: Callable[[Any], None], *names: str) -> None:
        """Call `apply` with the new settings at each reload. `names` are those that it uses.

        It raises ConfigurationError if it cannot use them, and then changes nothing.
        """


@dataclass(frozen=True, slots=True)
class Context:
    """What a feature is made with. `clock` is in seconds since the epoch."""

    settings: Settings
    #: This resolver's own URL without a slash at its end.
    public_url: str | None
    reloads: Reloads
    clock: Callable[[], float]
    events: EventLog
    #: The access log in place of the one that the settings describe.
    access_log: Stage | None = None


@dataclass(frozen=True, slots=True)
class Listener:
    """A further listener. `setting` has its address."""

    setting: str
    #: Builds its application, given the stages and the server's data about its connections.
    build: Callable[[Stages, Any], object]


@dataclass(frozen=True, slots=True)
class Opened:
    """What all open features add, in their order."""

    #: What they were opened with.
    core: Core
    stages: Stages
    sections: Sequence[Section]
    services: Sequence[Service]
    gates: Sequence[OperatorGate]
    listeners: Sequence[Listener]

    def admit(self, address: str) -> None:
        """Count a request of the client at an address, for a page that spends queries. See Admission.admit."""
        self.stages.admission.admit(address)

    def charge(self, address: str, cost: float) -> None:
        """Count what an answer cost beyond one request. See Admission.charge."""
        self.stages.admission.charge(address, cost)


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of pip, and the modules of its libraries."""

    name: str
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The parts that an upstream of a feature may use. `clock` returns seconds since the epoch."""

    #: Every message after the first one of a query takes a token of it.
    budget: Budget
    #: Keeps the records that lead to servers.
    cache: TieredStore
    policy: TtlPolicy
    clock: Callable[[], float]
    #: Observes the messages of the source. Its type is the feature's.
    observer: Any = None


@dataclass(frozen=True, slots=True)
class UpstreamKind:
    """The upstreams of one URL scheme."""

    #: Opens the one at a URL. Raises ConfigurationError.
    open: Callable[[Settings, str, SourceContext], Any]
    #: What `doi-proxy doctor --upstream` says about it.
    examine: Callable[[Settings, str], Coroutine[Any, Any, list[Finding]]]
    #: Whether its answers can be signed.
    is_signed: bool = False


class Others(Protocol):
    """The features that `needs` names. What a feature offers to another is an attribute of its object."""

    def __getitem__(self, feature: type[FeatureType]) -> FeatureType:
        """The object of a feature. One that the settings switch off is not open."""


class Feature:
    """A feature. Its file feature.py imports what it is made of when it is opened: commands load the class alone."""

    #: The name of its folder.
    name: ClassVar[str]
    #: What it does, in one line: docs/architecture.md lists it.
    summary: ClassVar[str]
    #: The features that it imports.
    needs: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[type[SettingsGroup] | None] = None
    #: The libraries that it cannot do without.
    extra: ClassVar[Extra | None] = None
    #: Upstreams, by the scheme of their URLs. The core opens http and https.
    upstreams: ClassVar[Mapping[str, UpstreamKind]] = {}
    #: What opens a store, by the scheme of its URL. The core opens memory.
    stores: ClassVar[Mapping[str, Opener]] = {}

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Whether the settings switch it on."""
        return True

    @classmethod
    def check(cls, inspection: Inspection) -> Iterable[Finding]:
        """Find what is wrong with its settings before a start, whether they switch it on or not."""
        return ()

    @classmethod
    def importer(cls) -> Importer | None:
        """What `cache import` reads with it."""

    @classmethod
    def store_records(cls) -> Any:
        """The records that it has in a SQLite store, None without any."""

    def observe(self) -> Observers:
        """Open what observes the core, before the core is built."""
        return Observers()

    def add_sources(self, core: Core) -> None:
        """Add sources of answers that go before the cache. Commands have them too."""

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Open the rest of the feature, for a service. Returns what it adds. Raises ConfigurationError."""
        return ()

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add its paths to the application of FastAPI, and to those behind the gates of operators.

        `face` gets the links to them, those that are JSON endpoints for clients, and those that are private.
        """


def require_libraries(feature: type[Feature]) -> None:
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
