"""What is the matter, in one sentence: a decision about the state of a service, without I/O."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Final

from doi_proxy.errors import BudgetSpent, PlacesFull, ResourcesShort, UpstreamSlow
from doi_proxy.features.status import models
from doi_proxy.features.status.models import DAY, HOUR, HistoryPoint, Span, Status, count_bands
from doi_proxy.system.check import LASTING
from doi_proxy.system.files import printable
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
    #: Whether something could not be used at the last reload.
    has_failed_reload: bool = False
    has_broken_records: bool = False


def summarize(facts: Facts, history: Sequence[models.HistoryPoint], started: float, now: float) -> models.StatusSummary:
    """The summary of a state, with its sentence. Times are in seconds since the epoch, history is oldest first."""
    # The history has a gap before its newest point if the machine slept, or the clock was set.
    recent = [point for point in history[-RECENT:] if point.start >= now - RECENT * DAY.step]
    requests, answers, hits, stale, failed = (
        sum(getattr(point, name) for point in recent) for name in ("requests", "answers", "hits", "stale", "unverified")
    )
    names = answers + failed
    seconds = max(now - max(recent[0].start, started), 1.0) if recent else 1.0
    deciding = [upstream for upstream in facts.upstreams if not upstream.is_route]
    state = find_state(facts.mode, {upstream.state for upstream in deciding}, is_draining=facts.is_draining)
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


def find_state(mode: str, upstreams: Collection[str], *, is_draining: bool) -> models.State:
    """The state of the service, given the states of the upstreams of all names. A route has a few."""
    if is_draining:
        return "draining"
    if mode == "sealed":
        return "sealed"
    return next((word for word, state in _DECIDING.items() if state in upstreams), "down")


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
    failed, traffic = write_share(language, summary.failed_share), _write_traffic(texts, summary)
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


_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
#: 24 hours in fewer columns than on the page, because a line of a terminal has 80 characters.
_DAY: Final = Span(columns=72, step=1_200, between_labels=21_600, row=3_600)
#: SGR sequences (ECMA-48, 8.3.117).
_BOLD, _RED, _YELLOW, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


class StatusText:
    """Writes a status in the words of a catalogue. Colours only add to what the text says."""

    def __init__(self, texts: Catalogue, *, has_colour: bool) -> None:
        self._texts = texts
        self._has_colour = has_colour

    def write(self, status: Status) -> str:
        """The whole status."""
        return "\n".join(line.rstrip() for line in self._lines(status))

    def _lines(self, status: Status) -> Iterator[str]:
        summary = status.summary
        if summary is None:
            return
        colour = _BOLD + _RED if summary.problems else _BOLD
        yield self._paint(colour, _clean(summary.sentence))
        for problem in summary.problems:
            text = _clean(write_problem(self._texts, problem, summary))
            yield f"  {self._paint(_YELLOW, text)}  {_clean(problem)}"
        yield ""
        yield "   ".join(self._numbers(status))
        now = status.started + status.uptime
        yield from self._plot("plot_hour", status.minutes, now, HOUR)
        yield from self._plot("plot_day", status.history, now, _DAY)
        yield from ("", self._say("events") if status.events else self._say("events_none"))
        for event in status.events:
            yield f"  {write_start(event.at)}  {_clean(write_event(self._texts, event))}"
        yield from ("", self._say("now"))
        for name, value in self._parts(status):
            # Width of the names of lines.
            yield f"  {_clean(name):22}  {_clean(value)}"
        for key in ("requests", "answers", "unverified", "refused"):
            counts: dict[str, int] = getattr(status, key)
            if counts:
                yield from ("", self._say(f"table_{key}"))
                yield from (f"  {count:>9,}  {_clean(self._word(key, name))}" for name, count in sorted(counts.items()))

    def _numbers(self, status: Status) -> Iterator[str]:
        summary = status.summary
        if summary is not None:
            yield f"{write_number('en', summary.requests_per_second)} {self._say('number_rate')}"
            hits = "–" if summary.hit_share is None else write_share("en", summary.hit_share)
            yield f"{hits} {self._say('number_hits')}"
            yield f"{write_share('en', summary.failed_share)} {self._say('number_failed')}"
            seconds = status.upstream_seconds
            time = "–" if seconds is None else f"{write_number('en', 1000 * seconds)} ms"
            yield f"{time} {self._say('number_upstream')}"

    def _plot(self, title: str, history: Sequence[HistoryPoint], now: int, span: Span) -> Iterator[str]:
        count, seconds = span.columns, span.step
        begin = now - count * seconds
        begin -= begin % seconds - seconds
        columns = [list[HistoryPoint]() for _ in range(count)]
        for point in history:
            column = (point.start - begin) // seconds
            if 0 <= column < count:
                columns[column].append(point)
        sums = [[sum(bands) for bands in zip(*map(count_bands, points), strict=True)] for points in columns]
        highest = max(map(sum, sums))
        if not highest:
            return
        rate = write_number("en", highest / seconds)
        yield from ("", f"{self._say(title)}, at most {self._say('scale', rate=rate)}")
        yield "  " + "".join(self._bar(column, highest) for column in sums)
        down = "".join("×" if any(point.down for point in points) else " " for points in columns)
        if down.strip():
            yield f"  {self._paint(_RED, down)}  × {self._say('band_down')}"
        labels = [" "] * (count + 5)
        for column in range(count):
            time = begin + column * seconds
            if time % span.between_labels == 0:
                labels[column : column + 5] = datetime.fromtimestamp(time, UTC).strftime("%H:%M")
        yield "  " + "".join(labels)

    def _bar(self, column: Sequence[int], highest: int) -> str:
        total = sum(column)
        block = _BLOCKS[-(-total * (len(_BLOCKS) - 1) // highest)]
        _, _, stale, unverified = column or (0, 0, 0, 0)
        colour = _RED if 20 * unverified > total else _YELLOW if 10 * stale > total else ""
        return self._paint(colour, block)

    def _parts(self, status: Status) -> Iterator[tuple[str, str]]:
        texts, budget, store = self._texts, status.budget, status.store
        state = "draining" if status.draining else f"mode_{status.mode}"
        yield self._say("service"), f"{self._say(state)}, {status.version}"
        yield self._say("started"), f"{write_start(status.started)} ({write_uptime(status.uptime)})"
        if status.instance:
            yield self._say("instance"), status.instance
        for upstream in () if status.summary is None else status.summary.upstreams:
            yield upstream.name, self._say("upstream_" + upstream.state.replace("-", "_"))
        waiting = write_count(texts, "status.waiting", budget.waiting)
        tokens = write_count(texts, "status.queries", round(budget.tokens, 1))
        yield self._say("budget"), self._say("budget_text", tokens=tokens, rate=f"{budget.rate:g}", waiting=waiting)
        size = write_number("en", store.bytes / 2**20)
        works = self._say("store_works", entries=write_count(texts, "status.entries", store.entries), megabytes=size)
        yield (
            self._say("store"),
            works if store.healthy else self._say("store_reads" if store.read_only else "store_fails"),
        )
        if (records := status.local_records) is not None:
            yield self._say("local_records"), self._say(f"local_{records.state}", count=records.records)

    def _word(self, table: str, name: str) -> str:
        prefix = {"answers": "status.answer_", "unverified": "failure.", "refused": "status.refused_"}.get(table)
        return name if prefix is None or prefix + name not in self._texts.texts else str(self._texts(prefix + name))

    def _say(self, key: str, **values: object) -> str:
        key = f"status.{key}"
        # A newer proxy can have states and problems that this release has no words for.
        return (
            html.unescape(str(self._texts(key, **values)))
            if key in self._texts.texts
            else _clean(key.partition("_")[2])
        )

    def _paint(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._has_colour and colour and text.strip() else text


def _clean(text: str) -> str:
    """A text of another machine, without control characters, which a terminal would obey."""
    return printable(html.unescape(text))
