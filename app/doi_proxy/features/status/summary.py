"""What is the matter, in one sentence: a decision about the numbers of `/status`, without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Final

from doi_proxy.errors import BudgetSpent, PlacesFull, ResourcesShort, UpstreamSlow
from doi_proxy.features.status import models
from doi_proxy.features.status.numbers import write_count, write_share
from doi_proxy.sharing.events import LASTING
from doi_proxy.web.date import write_moment
from doi_proxy.web.languages import CORE, Catalogue, read_packaged

#: The points that count as now: the last five to ten minutes.
_RECENT: Final = 2
#: The limits of config/prometheus/alerts.yml: shares of names, and seconds.
_UNVERIFIED: Final = 0.05
_STALE: Final = 0.1
_DELAY: Final = 0.25
#: Of fewer names, a share says nothing: one failure in a quiet night is not trouble.
_MIN_NAMES: Final = 5
#: The state of an upstream that decides a state of the service, the best first.
_DECIDING: Final[dict[models.State, str]] = {
    "working": "ok",
    "paused": "backing-off",
    "down": "failing",
    "unknown": "unknown",
}
#: The problems that a working service begins its sentence with.
_HEADLINES: Final = frozenset(
    {"DoiProxyResourcesShort", "DoiProxyUpstreamSlow", "DoiProxyPlacesFull", "DoiProxyBudgetSpent"}
    | {"DoiProxyCouldNotVerify", "DoiProxyStoreFails"}
)


def summarize(status: models.Status, upstreams: Sequence[models.UpstreamName], now: float) -> models.StatusSummary:
    """The summary of a status. `now` is in seconds since the epoch."""
    recent = status.history[-_RECENT:]
    requests, answers, hits, stale, failed = (
        sum(getattr(point, name) for point in recent) for name in ("requests", "answers", "hits", "stale", "unverified")
    )
    names = answers + failed
    seconds = max(now - max(recent[0].start, status.started), 1.0) if recent else 1.0
    deciding = [upstream for upstream in upstreams if not upstream.is_route]
    summary = models.StatusSummary(
        state=find_state(status.mode, {upstream.state for upstream in deciding}, is_draining=status.draining),
        upstreams=list(upstreams),
        down_since=min((upstream.down_since for upstream in deciding if upstream.down_since is not None), default=None),
        requests_per_second=requests / seconds,
        hit_share=hits / answers if answers else None,
        failed_share=failed / names if names else 0.0,
    )
    problems = list(
        _find_problems(
            status, summary, recent, failed=_is_much(failed, names, _UNVERIFIED), stale=_is_much(stale, answers, _STALE)
        )
    )
    return summary.model_copy(update={"problems": problems})


def find_state(mode: str, upstreams: Collection[str], *, is_draining: bool) -> models.State:
    """The state of the service, given the states of the upstreams of all names. A route has a few."""
    if is_draining:
        return "draining"
    if mode == "sealed":
        return "sealed"
    return next((word for word, state in _DECIDING.items() if state in upstreams), "down")


def _is_much(part: int, names: int, most: float) -> bool:
    return names >= _MIN_NAMES and part / names > most


def _find_problems(
    status: models.Status,
    summary: models.StatusSummary,
    recent: Sequence[models.HistoryPoint],
    *,
    failed: bool,
    stale: bool,
) -> Iterator[str]:
    """The entries of the runbook about what is wrong, the worst first."""
    states = {upstream.state for upstream in summary.upstreams}
    delays = [point.loop_delay for point in recent if point.loop_delay is not None]
    refused = {event.cause for event in status.events if event.kind == "refusal" and event.until is None}
    is_spent = status.budget.waiting > 0 and status.budget.tokens < 1
    wrong = {
        "DoiProxyResourcesShort": ResourcesShort.token in refused,
        "DoiProxyUpstreamSlow": UpstreamSlow.token in refused,
        "DoiProxyPlacesFull": PlacesFull.token in refused,
        "DoiProxyBudgetSpent": BudgetSpent.token in refused or is_spent,
        "DoiProxyCouldNotVerify": failed,
        "DoiProxyUpstreamBreakerOpen": "failing" in states,
        "DoiProxyUpstreamPaused": "backing-off" in states,
        "DoiProxyStoreFails": not status.store.healthy,
        "DoiProxyServesStale": stale,
        "DoiProxyEventLoopDelayed": bool(delays) and max(delays) > _DELAY,
        "local_records": status.local_records is not None and status.local_records.state == "broken",
    }
    yield from (name for name, is_wrong in wrong.items() if is_wrong)


def read_english() -> Catalogue:
    """The texts of the page in English, for programs and terminals."""
    return Catalogue("en", {**read_packaged(CORE, "en"), **read_packaged("doi_proxy.features.status", "en")})


def write_sentence(texts: Catalogue, summary: models.StatusSummary) -> str:
    """The state as a sentence or two, in the language of the texts: the worst that is wrong, or how upstreams are."""
    language, key = texts.language, f"status.sentence_{summary.state}"
    worst = next((problem for problem in summary.problems if problem in _HEADLINES), None)
    if summary.state == "working" and worst is not None:
        return str(
            texts(
                "status.sentence_problem",
                problem=texts(f"status.problem_{worst}"),
                failed=write_share(language, summary.failed_share),
                traffic=_write_traffic(texts, summary),
            )
        )
    deciding = _DECIDING.get(summary.state)
    upstreams = [upstream for upstream in summary.upstreams if upstream.state == deciding and not upstream.is_route]
    names = list(dict.fromkeys(upstream.name for upstream in upstreams))
    return str(
        texts(
            key if deciding is None else f"{key}_{'one' if len(names) == 1 else 'many'}",
            upstream=", ".join(names),
            time="–" if summary.down_since is None else write_moment(texts, summary.down_since),
            traffic=_write_traffic(texts, summary),
            failed=write_share(language, summary.failed_share),
        )
    )


def _write_traffic(texts: Catalogue, summary: models.StatusSummary) -> str:
    """How many requests there are, and which share the cache answers, if there was a request."""
    rate = write_count(texts, "status.rate", round(summary.requests_per_second, 1))
    if summary.hit_share is None:
        return str(texts("status.traffic_unknown", rate=rate))
    return str(texts("status.traffic", rate=rate, hits=write_share(texts.language, summary.hit_share)))


def write_event(texts: Catalogue, event: models.EventStatus) -> str:
    """An event in words, in the language of the texts."""
    key, duration = f"status.event_{event.kind}", ""
    if event.kind in LASTING and event.until is None:
        key += "_open"
    elif event.kind in LASTING and event.until is not None:
        duration = write_uptime(event.until - event.at)
    count = write_count(texts, "status.entries", event.count) if event.kind == "purge" else event.count
    cause = f"failure.{event.cause}"
    # A newer proxy can have causes that this release has no words for.
    reason = texts(cause) if cause in texts.texts else event.cause
    return str(texts(key, detail=event.detail, count=count, duration=duration, reason=reason))


def write_clock(seconds: float) -> str:
    """A time of the day in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M UTC")


def write_start(seconds: float) -> str:
    """A day and a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def write_uptime(seconds: float) -> str:
    """A duration such as "3 d 4 h 5 min"."""
    minutes = ceil(max(seconds, 0.0) / 60)
    days, hours = minutes // 1_440, minutes // 60 % 24
    return " ".join([f"{days} d"] * bool(days) + [f"{hours} h"] * bool(days or hours) + [f"{minutes % 60} min"])
