"""What a check finds before a start: how bad it is, where, what is wrong, and what to do."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from threading import enumerate as list_threads
from typing import Any, Final, Literal

from doi_proxy.errors import DoiProxyError
from doi_proxy.system.options import DEPRECATED, Settings


class Service:
    """What lives beside requests. It is started in the order of the features, and stopped in reverse."""

    async def start(self) -> None:
        """Called before the first request."""

    async def run(self) -> None:
        """Called in a task of its own, which is cancelled at the end, while the cache is open."""

    def tick(self, late: float) -> None:
        """Called every second, `late` seconds later than planned."""

    def ready(self) -> Mapping[str, Any]:
        """What /readyz shows about this service: words, or members of their own, without paths and messages."""
        return {}

    async def stop(self) -> None:
        """Called after the last request, when the parts of the core are closed."""


#: An error keeps the proxy from working. A warning is a risk. A note needs no action.
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result that an operator should read."""

    severity: Severity
    #: The setting as it was set, a file, or the probe.
    source: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.problem}; {self.remedy}" if self.remedy else self.problem
        return f"{self.source}: {text}" if self.source else text


@dataclass(frozen=True, slots=True)
class Inspection:
    """Valid settings to examine. An `offline` check connects to nothing."""

    settings: Settings
    #: Where each setting was set, such as `DOI_PROXY_PORT` or `--port`.
    sources: Mapping[str, str] = field(default_factory=dict)
    offline: bool = True

    def open_pages(self) -> Any:
        """The pages (doi_proxy.web.pages) of the core and of the features, in our own face."""
        raise NotImplementedError

    def is_set(self, name: str) -> bool:
        """Whether a setting has a value that differs from its default. No if its feature is not installed."""
        known = type(self.settings).model_fields.get(name)
        if known is None:
            return False
        # A default can follow from another setting.
        usual = known.get_default(call_default_factory=True, validated_data=dict(self.settings))
        return bool(self.settings.value(name) != usual)

    def source(self, name: str) -> str:
        """Where a setting was set; its name if it has its default."""
        return self.sources.get(name, name)

    def find_refusal(self, name: str, read: Callable[[], object], remedy: str = "") -> Iterator[Finding]:
        """The error of what a setting names, if reading it raises DoiProxyError."""
        try:
            read()
        except DoiProxyError as error:
            problem, _, advice = error.message.partition("; ")
            yield Finding("error", self.source(name), problem, advice or remedy)


Check = Callable[[Inspection], Iterable[Finding]]


def exit_status(findings: Iterable[Finding]) -> int:
    """2 if there is an error, 1 if there is a warning, else 0."""
    severities = {finding.severity for finding in findings}
    return 2 if "error" in severities else 1 if "warning" in severities else 0


def find_deprecated(inspection: Inspection) -> Iterator[Finding]:
    """Settings that are still set and that left."""
    for name, source in inspection.settings.departed.items():
        yield Finding("warning", source, "this setting left", DEPRECATED[name].remedy)


def find_access_problem(path: Path) -> str | None:
    """Why this user cannot read a file or a folder. None if it can."""
    try:
        path.stat()
    except OSError as error:
        return f"{path} cannot be used: {error.strerror}"
    if not (path.is_file() or path.is_dir()):
        return f"{path} is not a regular file"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return None if os.access(path, needed) else f"{path} is not readable by the user who runs this check"


EventKind = Literal[
    "start",
    "drain",
    "reload",
    "reload-failed",
    "clock",
    "purge",
    "deny",
    "outage",
    "pause",
    "refusal",
    "store",
]
#: The events that are kept.
MAX_EVENTS: Final = 30
#: Seconds between two events that count as one: a purge after a purge, or an outage that returns at once.
NEAR: Final = 10
#: The kinds whose counts are added.
_COUNTED: Final = frozenset({"purge", "deny"})
#: The kinds that have an end.
LASTING: Final = frozenset({"outage", "pause", "refusal", "store"})


@dataclass(frozen=True, slots=True)
class Event:
    """An event. Times are in seconds since the epoch. One that lasts, without `until`, goes on.

    `detail` is the host of an upstream, the version of a start, or the direction in which a clock was set. `cause` is
    the token of an error, and `sign` narrows it down; see Incident. `count` is the number of entries of a
    purge, of denials, or of the seconds by which a clock was set.
    """

    kind: EventKind
    at: int
    until: int | None = None
    detail: str = ""
    count: int = 1
    cause: str = ""
    sign: str = ""


class EventLog:
    """The events of one process, at most MAX_EVENTS, in memory."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def add(self, new: Event) -> None:
        """Add an event. Another report of a known one changes that in its place.

        Events are in the order of their first reports, not of their times: after the clock was set back, the newest
        event has the earliest time, and would be dropped at once.
        """
        for place in reversed(range(len(self._events))):
            if _is_same(self._events[place], new):
                self._events[place] = _join(self._events[place], new)
                return
        self._events = [*self._events, new][-MAX_EVENTS:]

    def record(self, kind: EventKind, now: float, count: int = 1) -> None:
        """Record what an operator did, now. `now` is in seconds since the epoch."""
        self.add(Event(kind, int(now), count=count))

    def read(self) -> list[Event]:
        """The events, in the order of their first reports."""
        return list(self._events)


def _is_same(event: Event, new: Event) -> bool:
    if (event.kind, event.detail, event.cause, event.sign) != (new.kind, new.detail, new.cause, new.sign):
        return False
    if event.kind in LASTING:
        return event.until is None or new.at <= event.until + NEAR
    return event.kind in _COUNTED and abs(new.at - (event.until or event.at)) <= NEAR


def _join(event: Event, new: Event) -> Event:
    if event.kind in _COUNTED:
        return replace(event, until=new.at, count=event.count + new.count)
    return replace(event, until=None if new.until is None else max(event.at, new.until))


#: What socket.getaddrinfo returns for one address.
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]

#: Look-ups of a process at a time. A caller looks up one host once at a time.
MAX_LOOKUPS: Final = 100
_THREAD: Final = "host-lookup"


async def look_up(host: str, port: int, family: int = socket.AF_UNSPEC, flags: int = 0) -> Sequence[AddressInfo]:
    """The addresses for TCP, in the order of the system (RFC 6724). Raises OSError."""
    with suppress(ValueError):
        ip_address(host)
        # An address as text needs neither a name server nor a thread.
        return socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags)
    if sum(thread.name == _THREAD for thread in list_threads()) >= MAX_LOOKUPS:
        raise OSError(f"{MAX_LOOKUPS} look-ups of hosts wait for the name server")
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[AddressInfo]] = loop.create_future()

    def work() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(found.set_result, socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags))
        except (OSError, UnicodeError) as error:
            # A name that IDNA refuses is a UnicodeError.
            settle = partial(found.set_exception, error if isinstance(error, OSError) else OSError(str(error)))
        # The loop may have ended, and the caller may have gone.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if found.done() else settle())

    Thread(target=work, name=_THREAD, daemon=True).start()
    return await found


def write_address(address: Any) -> str:
    """An address of AddressInfo as text. A link-local address of IPv6 has its interface (RFC 4007, section 11)."""
    return socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]


#: An upstream does not answer; it requested a pause; queries about new names are not admitted; or the store fails.
IncidentKind = Literal["outage", "pause", "refusal", "store"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something does not work.

    `token` is that of an error, and `sign` narrows it down; see CouldNotVerify.
    """

    token: str = ""
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident. Times are those of the clock of its part, in seconds."""

    kind: IncidentKind
    cause: Cause
    began: float
    #: None while it goes on.
    ended: float | None = None


class Incidents:
    """The incidents of one kind and one part, at most one at a time."""

    def __init__(self, kind: IncidentKind) -> None:
        self._kind: IncidentKind = kind
        #: The incident that goes on.
        self.under_way: Incident | None = None
        # Incidents that ended and were not read yet. Beyond that, the oldest is dropped.
        self._ended: deque[Incident] = deque(maxlen=20)

    def begin(self, at: float, cause: Cause) -> None:
        """Begin an incident, and end the one that goes on."""
        self.end(at)
        self.under_way = Incident(self._kind, cause, at)

    def end(self, at: float) -> None:
        """End the incident that goes on, if there is one."""
        if self.under_way is not None:
            self._ended.append(replace(self.under_way, ended=at))
            self.under_way = None

    def read(self) -> list[Incident]:
        """The incidents that have ended since the last call, and the one that goes on."""
        found = [*self._ended, *([self.under_way] if self.under_way is not None else [])]
        self._ended.clear()
        return found


@dataclass(frozen=True, slots=True)
class CounterData:
    """A counter of a feature, with at most one label and the values that it can have."""

    name: str
    about: str
    label: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GaugeData:
    """A gauge of a feature."""

    name: str
    about: str


class Meter:
    """What counts for the features. This one counts nothing; the feature metrics has one that does."""

    def counter(self, data: CounterData) -> Callable[..., None]:
        """A function that increments the counter, given the value of its label if it has one, and an amount."""
        return lambda *_: None

    def gauge(self, data: GaugeData, read: Callable[[], float]) -> None:
        """Read the gauge before each scrape."""


#: The counter of refused clients, which the limits, lists and the core's budget increment. The limits that can refuse
#: a client: its share of upstream queries, its request rate, the deny list, `auth` or `cert`, and open lists.
REFUSED: Final = CounterData(
    "client_refusals",
    "Answers refused because their client is over a limit or on the deny list.",
    "reason",
    ("share", "rate", "denied", "bypass", "batches"),
)
