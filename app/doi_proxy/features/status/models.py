"""The answers of /healthz, /readyz and /status. They have states and counts alone: no name, no address."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, Field

from doi_proxy.system.check import EventKind

#: The path of the page.
STATUS_PATH: Final = "/status"
#: Seconds of a point of the history.
STEP: Final = 300


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
    """Sums of five minutes."""

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
        description="What narrows the cause down: `page` (of HTML), `redirect`, `dns`, `egress`, `certificate`, "
        "`certificate-expired`, `certificate-early`, `certificate-host`, or the HTTP status of a refusal.",
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
