"""The status as text for a terminal: the sentence, what is wrong, numbers, 24 hours, events, and the parts."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Final

from doi_proxy.features.status.models import HistoryPoint, Status
from doi_proxy.features.status.numbers import write_count, write_number, write_share
from doi_proxy.features.status.plot import HOUR, Span, count_bands
from doi_proxy.features.status.summary import write_clock, write_event, write_problem, write_start, write_uptime
from doi_proxy.system.standard_streams import printable
from doi_proxy.web.languages import Catalogue

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
#: 24 hours in fewer columns than on the page, because a line of a terminal has 80 characters.
_DAY: Final = Span(columns=72, step=1_200, between_labels=21_600, row=3_600)
#: SGR sequences (ECMA-48, 8.3.117).
_BOLD, _RED, _YELLOW, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[0m"
#: Width of the names of lines.
_NAME: Final = 22
_TABLES: Final = ("requests", "answers", "unverified", "refused")


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
            yield f"  {_clean(name):{_NAME}}  {_clean(value)}"
        for key in _TABLES:
            counts: dict[str, int] = getattr(status, key)
            if counts:
                yield from ("", self._say(f"table_{key}"))
                yield from (f"  {count:>9,}  {_clean(self._word(key, name))}" for name, count in sorted(counts.items()))

        for kind, prefixes in (status.prefixes or {}).items():
            if prefixes:
                yield from ("", self._say(f"prefixes_{kind}"))
                yield from (
                    f"  {counted_prefix.names:>9,}  {_clean(counted_prefix.prefix)}" for counted_prefix in prefixes
                )

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
                labels[column : column + 5] = write_clock(time)[:5]
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
