"""What is the matter, in one sentence: a decision about the state of a service, without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Final

from doi_proxy.errors import BudgetSpent, PlacesFull, ResourcesShort, UpstreamSlow
from doi_proxy.features.status import models
from doi_proxy.system.check import LASTING
from doi_proxy.web.languages import CORE, Catalogue, read_packaged
from doi_proxy.web.negotiation import write_moment

#: The decimal mark and the mark between groups of three digits (Unicode CLDR, `numbers`).
_MARKS: Final = {"de": (",", "."), "es": (",", "."), "fr": (",", "\N{NARROW NO-BREAK SPACE}")}


def write_number(language: str, value: float, digits: int = 1) -> str:
    """A number with at most so many digits after the decimal mark, without zeros at its end."""
    mark, group = _MARKS.get(_main_tag(language), (".", ","))
    # A number with more digits is written without a fraction.
    text = f"{value:,.{0 if abs(value) >= 100 else digits}f}"
    if "." in text:
        text = text.rstrip("0").removesuffix(".")
    return text.translate({ord(","): group, ord("."): mark})


def write_share(language: str, share: float) -> str:
    """A share from 0 to 1 in per cent. German, French and Spanish have a space before the sign."""
    space = "\N{NO-BREAK SPACE}" if _main_tag(language) in _MARKS else ""
    return f"{write_number(language, 100 * share)}{space}%"


def write_count(texts: Catalogue, key: str, count: float) -> str:
    """A count with its noun. The noun is the text `key` with `_one` or `_many` at its end."""
    # In French every number below two takes the singular, as in "0 entrée" (Unicode CLDR, plural rules).
    is_singular = count == 1 or (count < 2 and _main_tag(texts.language) == "fr")
    return str(texts(key + ("_one" if is_singular else "_many"), count=write_number(texts.language, count)))


def _main_tag(language: str) -> str:
    return language.partition("-")[0]


#: The points that count as now: the last five to ten minutes.
RECENT: Final = 2
#: The state of an upstream that decides a state of the service, the best first.
_DECIDING: Final[dict[models.State, str]] = {
    "working": "ok",
    "paused": "backing-off",
    "down": "failing",
    "unknown": "unknown",
}
#: The problems that the states "down" and "paused" are, if no upstream of all names works.
_OUTAGE: Final = "DoiProxyUpstreamBreakerOpen"
_PAUSE: Final = "DoiProxyUpstreamPaused"
_FAILURES: Final = "DoiProxyCouldNotVerify"
_STORE_FAILS: Final = "DoiProxyStoreFails"
_STORE_READS: Final = "store"


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides about the state of a service and its problems."""

    upstreams: Sequence[models.UpstreamName]
    mode: str = "online"
    is_draining: bool = False
    #: Why queries about new names are refused or wait now: tokens of errors.
    refusals: Collection[str] = ()
    #: Why the last name got no answer from an upstream, and what narrows that down.
    cause: str = ""
    sign: str = ""
    #: See TierStats.
    store: str = "ok"
    store_cause: str = ""
    #: Whether the clock was set a moment ago.
    was_clock_set: bool = False
    #: Whether the last reload failed, or a file that the settings name has a mistake.
    has_failed_reload: bool = False
    has_broken_records: bool = False


def summarize(facts: Facts, history: Sequence[models.HistoryPoint], started: float, now: float) -> models.StatusSummary:
    """The summary of a state, with its sentence. Times are in seconds since the epoch, history is oldest first."""
    # The history has a gap before its newest point if the machine slept, or the clock was set.
    recent = [point for point in history[-RECENT:] if point.start >= now - RECENT * models.STEP]
    requests, answers, hits, stale, failed = (
        sum(getattr(point, name) for point in recent) for name in ("requests", "answers", "hits", "stale", "unverified")
    )
    names = answers + failed
    seconds = max(now - max(recent[0].start, started), 1.0) if recent else 1.0
    deciding = [upstream for upstream in facts.upstreams if not upstream.is_route]
    states = {upstream.state for upstream in deciding}
    # A route has a few names, so its upstream decides nothing about the service.
    state: models.State = next((word for word, upstream in _DECIDING.items() if upstream in states), "down")
    state = "draining" if facts.is_draining else "sealed" if facts.mode == "sealed" else state
    delays = [point.loop_delay for point in recent if point.loop_delay is not None]
    # The limits of config/prometheus/alerts.yml: shares of names, and seconds.
    summary = models.StatusSummary(
        state=state,
        upstreams=list(facts.upstreams),
        down_since=min((upstream.down_since for upstream in deciding if upstream.down_since is not None), default=None),
        cause=facts.cause,
        sign=facts.sign,
        store_cause=facts.store_cause,
        requests_per_second=requests / seconds,
        hit_share=hits / answers if answers else None,
        failed_share=failed / names if names else 0.0,
        problems=list(
            _find_problems(
                facts,
                state,
                has_failures=_is_much(failed, names, 0.05),
                has_stale=_is_much(stale, answers, 0.1),
                is_delayed=bool(delays) and max(delays) > 0.25,
            )
        ),
    )
    return summary.model_copy(update={"sentence": write_sentence(read_english(), summary)})


def _is_much(part: int, names: int, most: float) -> bool:
    # Of fewer names, a share says nothing: one failure in a quiet night is not trouble.
    return names >= 5 and part / names > most


def _find_problems(
    facts: Facts, state: models.State, *, has_failures: bool, has_stale: bool, is_delayed: bool
) -> Iterator[str]:
    """The entries of the runbook about what is wrong, the worst first.

    First is why readers of new names get no answer: this machine, all upstreams, or what their queries wait for. Then
    comes what makes that likely, and last what only an operator notices.
    """
    states = {upstream.state for upstream in facts.upstreams}
    wrong = {
        "DoiProxyResourcesShort": ResourcesShort.token in facts.refusals,
        _OUTAGE: "failing" in states,
        _PAUSE: "backing-off" in states,
        "DoiProxyUpstreamSlow": UpstreamSlow.token in facts.refusals,
        "DoiProxyPlacesFull": PlacesFull.token in facts.refusals,
        "DoiProxyBudgetSpent": BudgetSpent.token in facts.refusals,
        _FAILURES: has_failures,
        _STORE_FAILS: facts.store == "failing",
        _STORE_READS: facts.store == "read-only",
        "DoiProxyClockWrong": facts.was_clock_set,
        "DoiProxyReloadFailed": facts.has_failed_reload,
        "DoiProxyServesStale": has_stale,
        "DoiProxyEventLoopDelayed": is_delayed,
        "local_records": facts.has_broken_records,
    }
    found = [name for name, is_wrong in wrong.items() if is_wrong]
    # While another upstream answers, one that does not is not the worst.
    partial = [name for name, whole in ((_OUTAGE, "down"), (_PAUSE, "paused")) if name in found and state != whole]
    yield from (name for name in found if name not in partial)
    yield from partial


def read_english() -> Catalogue:
    """The texts of the page in English, for programs and terminals."""
    return Catalogue("en", {**read_packaged(CORE, "en"), **read_packaged("doi_proxy.features.status", "en")})


def write_sentence(texts: Catalogue, summary: models.StatusSummary) -> str:
    """The state as a sentence or two, in the language of the texts: the worst that is wrong, or how upstreams are."""
    language, worst = texts.language, next(iter(summary.problems), None)
    failed = write_share(language, summary.failed_share)
    rate = write_count(texts, "status.rate", round(summary.requests_per_second, 1))
    hits = "" if summary.hit_share is None else write_share(language, summary.hit_share)
    traffic = texts("status.traffic" if hits else "status.traffic_unknown", rate=rate, hits=hits)
    is_upstream = (worst, summary.state) in ((_OUTAGE, "down"), (_PAUSE, "paused"))
    if worst is not None and summary.state != "draining" and not is_upstream:
        problem = write_problem(texts, worst, summary)
        return str(texts("status.sentence_problem", problem=problem, failed=failed, traffic=traffic))
    deciding = _DECIDING.get(summary.state)
    upstreams = [upstream for upstream in summary.upstreams if upstream.state == deciding and not upstream.is_route]
    names = list(dict.fromkeys(upstream.name for upstream in upstreams))
    key = f"status.sentence_{summary.state}"
    return str(
        texts(
            key if deciding is None else f"{key}_{'one' if len(names) == 1 else 'many'}",
            upstream=", ".join(names),
            time="–" if summary.down_since is None else write_moment(texts, summary.down_since),
            cause=_write_causes(texts, upstreams),
            traffic=traffic,
            failed=failed,
        )
    )


def write_problem(texts: Catalogue, problem: str, summary: models.StatusSummary) -> str:
    """What is wrong, without a full stop. Problems of upstreams, names and the store have their cause."""
    key = f"status.problem_{problem}"
    # A newer proxy can have problems that this release has no words for.
    text = str(texts(key)) if key in texts.texts else problem
    state = {_OUTAGE: "failing", _PAUSE: "backing-off"}.get(problem)
    cause, sign = {
        _FAILURES: (summary.cause, summary.sign),
        _STORE_FAILS: (summary.store_cause, ""),
        _STORE_READS: (summary.store_cause, ""),
    }.get(problem, ("", ""))
    if cause:
        return text + str(texts("status.because", cause=write_cause(texts, cause, sign)))
    return text + _write_causes(texts, [upstream for upstream in summary.upstreams if upstream.state == state])


def _write_causes(texts: Catalogue, upstreams: Sequence[models.UpstreamName]) -> str:
    """The causes of what is wrong with upstreams, after a colon."""
    causes = dict.fromkeys(write_cause(texts, one.cause, one.sign) for one in upstreams if one.cause)
    return str(texts("status.because", cause=", ".join(causes))) if causes else ""


def write_cause(texts: Catalogue, cause: str, sign: str) -> str:
    """A cause, with what narrows it down in parentheses."""
    key = f"status.cause_{cause}"
    # A newer proxy can have causes and signs that this release has no words for.
    text = str(texts(key)) if key in texts.texts else cause
    key = f"status.sign_{sign}"
    if sign.isdecimal():
        return f"{text} ({texts('status.sign_status', status=sign)})"
    return f"{text} ({texts(key)})" if key in texts.texts else text


def write_event(texts: Catalogue, event: models.EventStatus) -> str:
    """An event in words, in the language of the texts."""
    key, duration = f"status.event_{event.kind}", ""
    if event.kind in LASTING and event.until is None:
        key += "_open"
    elif event.kind in LASTING and event.until is not None:
        duration = write_length(event.until - event.at)
    elif event.kind == "clock":
        key += f"_{event.detail}"
    count = write_count(texts, "status.entries", event.count) if event.kind == "purge" else event.count
    cause = write_cause(texts, event.cause, event.sign) if event.kind in LASTING and event.cause else ""
    # A newer proxy can have events that this release has no words for.
    if key not in texts.texts:
        return event.kind
    return str(
        texts(
            key,
            detail=event.detail,
            count=count,
            seconds=write_length(event.count),
            duration=duration,
            cause=str(texts("status.because", cause=cause)) if cause else "",
        )
    )


def write_start(seconds: float) -> str:
    """A day and a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def write_uptime(seconds: float) -> str:
    """A duration such as "3 d 4 h 5 min"."""
    minutes = ceil(max(seconds, 0.0) / 60)
    days, hours = minutes // 1_440, minutes // 60 % 24
    return " ".join([f"{days} d"] * bool(days) + [f"{hours} h"] * bool(days or hours) + [f"{minutes % 60} min"])


def write_length(seconds: float) -> str:
    """A duration in its two largest units, such as "2 min 5 s"."""
    rest, parts = round(max(seconds, 0.0)), list[str]()
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count and len(parts) < 2:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts) or "0 s"


def write_numbers(language: str, status: models.Status) -> dict[str, str]:
    """The four numbers of the first screen, by the keys of their texts."""
    summary, seconds = status.summary, status.upstream_seconds
    return {
        "number_rate": write_number(language, summary.requests_per_second),
        "number_hits": "–" if summary.hit_share is None else write_share(language, summary.hit_share),
        "number_failed": write_share(language, summary.failed_share),
        "number_upstream": "–" if seconds is None else f"{write_number(language, 1000 * seconds)}\N{NO-BREAK SPACE}ms",
    }


def write_text(status: models.Status) -> Iterator[str]:
    """The lines of a terminal: the sentence, what is wrong, four numbers and the events."""
    texts, summary = read_english(), status.summary
    yield summary.sentence
    yield from (f"  {write_problem(texts, problem, summary)}  {problem}" for problem in summary.problems)
    numbers = write_numbers("en", status).items()
    yield from ("", "   ".join(f"{value} {texts(f'status.{key}')}" for key, value in numbers))
    yield from ("", str(texts("status.events" if status.events else "status.events_none")))
    yield from (f"  {write_start(event.at)}  {write_event(texts, event)}" for event in status.events)
