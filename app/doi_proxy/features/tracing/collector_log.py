"""The log of a collector of traces: one line if it fails, and one if it works again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

#: The SDK logs each attempt here: a line a second in each process, while a collector is down.
_LIBRARY: Final = "opentelemetry.exporter"
#: Characters of the reason in the log.
_MAX_REASON: Final = 300


class LoggedExporter(SpanExporter):
    """Exports spans by another exporter, and logs only whether its collector has failed or works again."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._host = urlsplit(endpoint).netloc
        self._works = True
        self._attempts = _Attempts()
        library = logging.getLogger(_LIBRARY)
        library.propagate = False
        library.addHandler(self._attempts)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter. A thread of the SDK calls it."""
        self._attempts.reason = ""
        result = self._exporter.export(spans)
        works = result is SpanExportResult.SUCCESS
        if self._works and not works:
            reason = self._attempts.reason[:_MAX_REASON] or "no reason is known"
            log.warning("the collector of traces at %s does not take spans, which are dropped: %s", self._host, reason)
        elif works and not self._works:
            log.warning("the collector of traces at %s takes spans again", self._host)
        self._works = works
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        logging.getLogger(_LIBRARY).removeHandler(self._attempts)
        self._exporter.shutdown()


class _Attempts(logging.Handler):
    """Keeps the first message of an export: it has the reason, and the last one only says that the time is over."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        self.reason = self.reason or record.getMessage()
