"""The answers of /healthz, /readyz and /status. They have states and counts alone: no name, no address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import ceil, floor, log10
from typing import Final, Literal

from pydantic import BaseModel, Field

from doi_proxy.system.check import EventKind

#: The path of the page.
STATUS_PATH: Final = "/status"


class Health(BaseModel):
    """The process runs."""

    status: str = Field("ok", examples=["ok"])


class UpstreamReadiness(BaseModel):
    """One upstream. Details: the log and `/metrics`."""

    number: int = Field(description="The upstream's number, from 1 in the order of the settings.", examples=[1])
    state: Literal["unknown", "ok", "failing", "backing-off"] = Field(
        description="`unknown` before the first query; `backing-off` during a pause that it requested (Retry-After)."
    )
    breaker: Literal["closed", "half-open", "open"] = Field(description="The circuit breaker.")
    retry_after: int | None = Field(None, description="Seconds until the next query, during a pause that it requested.")


class ProblemPlace(BaseModel):
    """Where a file of local records has a problem. The log has the message."""

    file: str = Field(description="The name of the file without its folder.", examples=["local-records.toml"])
    line: int = Field(description="The line, from 1; 0 for the whole file.", examples=[12])
    column: int = Field(description="The column, from 1; 0 for the whole file.", examples=[1])


class LocalReadiness(BaseModel):
    """The local records of this process."""

    state: Literal["ok", "broken"] = Field(
        description="`broken` while a file has an error; then earlier records are in force."
    )
    records: int = Field(description="The number of records in force.", examples=[3])
    problems: list[ProblemPlace] = Field(default_factory=list, description="Errors and warnings, the first ten.")


class Readiness(BaseModel):
    """The process can answer. An upstream that is down does not make it unready: its records are the reason to stay."""

    ready: bool = Field(description="Whether requests should be sent here.")
    instance: str = Field("", description="The setting `instance`: the instance that answers.", examples=["1"])
    detail: dict[str, str] = Field(default_factory=dict, description="One word for each part.")
    problems: list[str] = Field(
        default_factory=list,
        description="What is wrong, the worst first: entries of docs/runbook.md.",
    )
    sentence: str = Field("", description="The worst problem in an English sentence, or `Working.`")
    upstreams: list[UpstreamReadiness] = Field(default_factory=list, description="Each upstream; none if sealed.")
    local_records: LocalReadiness | None = Field(
        None, description="The local records, null without the setting `local_records`."
    )


class HistoryPoint(BaseModel):
    """Sums of five minutes, or of one."""

    start: int = Field(description="Its beginning, in seconds since the epoch.")
    requests: int
    answers: int = Field(description="Names that were answered.")
    hits: int = Field(description="Answers that needed no query: fresh records, local and registry records.")
    stale: int = Field(description="Answers past their TTL, because the upstream could not be queried.")
    unverified: int = Field(description="Names that could not be answered.")
    questions: int = Field(description="Upstream queries.")
    upstream_seconds: float | None = Field(None, description="Mean time of an upstream query.")
    loop_delay: float | None = Field(None, description="Mean delay of the event loop, in seconds.")
    down: int = Field(0, description="Seconds in which an upstream was down.")


class EventStatus(BaseModel):
    """Something that happened to the service. It has no name and no client."""

    kind: EventKind
    at: int = Field(description="Its time, or its beginning, in seconds since the epoch.")
    until: int | None = Field(description="The end of what lasts, or the last of several purges or denials.")
    detail: str = Field(
        description="The host of an upstream, the version of a start, or the direction in which the clock was set."
    )
    count: int = Field(description="Entries of a purge, denials, or the seconds by which the clock was set.")
    cause: str = Field(
        "",
        description="Why it happened: the token of an error, as in docs/errors.md; of a store for example "
        "`store-full`.",
    )
    sign: str = Field(
        "",
        description="What narrows the cause down: `page` (of HTML), `redirect`, `dns`, `certificate`, or the HTTP "
        "status of a refusal.",
    )


class StoreStatus(BaseModel):
    """The store, and the memory of this process."""

    kind: Literal["memory", "sqlite", "server"]
    healthy: bool
    read_only: bool = Field(False, description="It can be read, but not written.")
    entries: int
    bytes: int
    memory_entries: int
    memory_bytes: int


class BudgetStatus(BaseModel):
    """The budget of upstream queries."""

    tokens: float = Field(description="Queries that may be sent now.")
    rate: float = Field(description="Queries a second.")
    in_flight: int
    waiting: int
    clients_waiting: int = Field(description="Clients with a query that waits.")


class ClientStatus(BaseModel):
    """How many clients sent the requests of the last hour. A client is a network. There is no address.

    Prepared answers count one answer in 16, sixteenfold. A client with a few such requests can be missing.
    """

    networks: int = Field(description="Clients that sent a request.")
    largest_share: float | None = Field(description="Share of the busiest client, 0 to 1.")


class UpstreamName(BaseModel):
    """An upstream by its host."""

    name: str = Field(examples=["doi.org"])
    state: Literal["unknown", "ok", "failing", "backing-off"]
    down_since: int | None = Field(description="The first failure of an outage, in seconds since the epoch.")
    is_route: bool = Field(False, description="Whether it has only the names of some prefixes.")
    cause: str = Field("", description="Why it fails or pauses: the token of an error, as in docs/errors.md.")
    sign: str = Field("", description="What narrows the cause down, as in an event.")


#: The state of the service as a word.
State = Literal["draining", "sealed", "working", "unknown", "paused", "down"]


class StatusSummary(BaseModel):
    """The state of the service now: the last five to ten minutes."""

    state: State
    sentence: str = Field("", description="The state in words, in English.")
    upstreams: list[UpstreamName]
    down_since: int | None = Field(
        description="The beginning of the longest outage, without those of routes, in seconds."
    )
    requests_per_second: float
    hit_share: float | None = Field(description="Share of the answers that were fresh in the cache, 0 to 1.")
    failed_share: float = Field(description="Share of the names that got no answer, 0 to 1.")
    cause: str = Field("", description="Why the last of them got none from an upstream: the token of an error.")
    sign: str = Field("", description="What narrows the cause down, as in an event.")
    store_cause: str = Field("", description="Why the store fails or cannot be written, as in an event.")
    problems: list[str] = Field(
        default_factory=list, description="What is wrong, the worst first: entries of docs/runbook.md."
    )


class Status(BaseModel):
    """The state of this instance. Counts are since its start."""

    summary: StatusSummary
    version: str
    instance: str = Field("", description="The setting `instance`: the instance that answers.", examples=["1"])
    started: int = Field(description="The start of the process, in seconds since the epoch.")
    uptime: int = Field(description="Seconds since the start.")
    mode: Literal["online", "sealed"]
    draining: bool
    requests: dict[str, int] = Field(description="Requests by status.", examples=[{"302": 1200}])
    answers: dict[str, int] = Field(description="Names answered, by where the answer came from.")
    hit_share: float | None = Field(description="Share of the answers that were fresh in the cache, 0 to 1.")
    independent_share: float | None = Field(
        description="Share of the names of the last 24 hours that needed no query: fresh, or kept past their TTL."
    )
    unverified: dict[str, int] = Field(description="Names that could not be verified, by reason.")
    denied: int = Field(description="Names whose prefix a local record denies.")
    upstreams: list[UpstreamReadiness]
    upstream_seconds: float | None = Field(description="Mean time of an upstream query in the last hour.")
    budget: BudgetStatus
    store: StoreStatus
    local_records: LocalReadiness | None
    clients: ClientStatus
    connections: int = Field(description="Open client connections.")
    refused: dict[str, int] = Field(description="Requests refused because of their client, by reason.")
    loop_delay: float | None = Field(description="Mean delay of the event loop in the last hour, in seconds.")
    events: list[EventStatus] = Field(description="The last 30 events, the newest first.")
    history: list[HistoryPoint] = Field(description="The last 24 hours in sums of five minutes, oldest first.")
    minutes: list[HistoryPoint] = Field(
        default_factory=list, description="The last hour in sums of a minute, since the start, oldest first."
    )


#: The height of a plot in its own units.
HEIGHT: Final = 100
#: What became of the names of a column, from the bottom to the top.
BANDS: Final = ("cache", "upstream", "stale", "unverified")


@dataclass(frozen=True, slots=True)
class Span:
    """The time of a plot: columns of `step` seconds, the seconds between labels, and those of a row of its table."""

    columns: int
    step: int
    between_labels: int
    row: int


DAY: Final = Span(288, 300, 6 * 3_600, 3_600)
HOUR: Final = Span(60, 60, 900, 300)


@dataclass(frozen=True, slots=True)
class Row:
    """The names of the time from `start` on, in the order of BANDS, and the minutes in which an upstream was down."""

    start: int
    names: tuple[int, ...]
    down: int


@dataclass(frozen=True, slots=True)
class Plot:
    """The stacked areas by their band, the topmost first, to be painted in this order.

    `down` are the columns in which an upstream was down: place and width. `labels` are times with their place in per
    cent, and the side on which one at an edge must not stick out. `top` is the scale: names a second at the upper
    edge, 0.0 without any. `rows` are the numbers for a table. `width` is the number of columns.
    """

    width: int
    paths: tuple[tuple[str, str], ...]
    down: tuple[tuple[int, int], ...]
    labels: tuple[tuple[str, str, str], ...]
    top: float
    rows: tuple[Row, ...]


def count_bands(point: HistoryPoint) -> tuple[int, ...]:
    """The names of a point, in the order of BANDS."""
    return point.hits, max(0, point.answers - point.hits - point.stale), point.stale, point.unverified


def plot(history: Sequence[HistoryPoint], now: float, span: Span = DAY) -> Plot:
    """Draw the time before `now`, in seconds since the epoch. A missing point is a gap."""
    begin = int(now - now % span.step) + span.step - span.columns * span.step
    columns = {}
    for point in history:
        seconds = min(span.step, now - point.start)
        # The share of a column after which the newest one has a rate.
        if point.start >= begin and seconds >= 0.2 * span.step:
            sums = accumulate(count_bands(point))
            columns[(point.start - begin) // span.step] = [count / seconds for count in sums]
    top = _round_up(max((sums[-1] for sums in columns.values()), default=0.0))
    down = [(point.start - begin) // span.step for point in history if point.down and point.start >= begin]
    return Plot(
        width=span.columns,
        paths=tuple(_draw(columns, top)) if top else (),
        down=tuple((run[0], len(run)) for run in _runs(down)),
        labels=tuple(_label(begin, span)),
        top=top,
        rows=tuple(_sum_rows(history, begin, span)),
    )


def _round_up(rate: float) -> float:
    """The next round number."""
    if rate <= 0:
        return 0.0
    power = 10.0 ** floor(log10(rate))
    # The upper edges of the scale, at a power of ten.
    return float(f"{next(step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= rate * 0.999) * power:.6g}")


def _draw(columns: dict[int, list[float]], top: float) -> Iterator[tuple[str, str]]:
    for number in reversed(range(len(BANDS))):
        # An area that adds nothing would be hidden by the next one.
        if not any(sums[number] > (sums[number - 1] if number else 0.0) for sums in columns.values()):
            continue
        pieces = []
        for run in _runs(sorted(columns)):
            steps = "".join(f"V{HEIGHT * (1 - columns[column][number] / top):.4g}h1" for column in run)
            pieces.append(f"M{run[0]} {HEIGHT}{steps}V{HEIGHT}z")
        yield BANDS[number], "".join(pieces)


def _runs(columns: Sequence[int]) -> list[list[int]]:
    """Numbers in ascending order as runs without gaps."""
    runs = list[list[int]]()
    for column in columns:
        if runs and runs[-1][-1] == column - 1:
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def _label(begin: int, span: Span) -> Iterator[tuple[str, str, str]]:
    width, distance = span.columns * span.step, span.between_labels
    for time in range(begin - begin % distance + distance, begin + width, distance):
        place = 100 * (time - begin) / width
        # Half of the width of a label on a telephone, in per cent of the plot.
        side = "first" if place < 6 else "last" if place > 94 else ""
        yield datetime.fromtimestamp(time, UTC).strftime("%H:%M"), f"{place:.4g}%", side


def _sum_rows(history: Sequence[HistoryPoint], begin: int, span: Span) -> Iterator[Row]:
    points = dict[int, list[HistoryPoint]]()
    for point in history:
        if point.start >= begin:
            points.setdefault(point.start - point.start % span.row, []).append(point)
    for start, found in points.items():
        names = tuple(map(sum, zip(*map(count_bands, found), strict=True)))
        yield Row(start, names, ceil(sum(point.down for point in found) / 60))
