"""The log of the program, on standard error, as text or as one JSON object per line.

Requests are logged by app/doi_proxy/features/privacy/access_log.py.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

import msgspec

from doi_proxy.assembly.settings import Settings

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: The journal has the time of each line.
_TIME: Final = "%(asctime)s "
#: Priorities of the journal (sd-daemon(3), syslog(3)) by the lowest severity that has them.
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG_PRIORITY: Final = 7
_STANDARD_ERROR: Final = 2


class JSONFormatter(logging.Formatter):
    """Formats a record as one JSON object without line breaks: time, level, logger, message and, if any, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        line["message"] = _encodable(record.getMessage().strip())
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = _encodable(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = _encodable(self.formatStack(record.stack_info))
        return msgspec.json.encode(line).decode()


class JournalFormatter(logging.Formatter):
    """Begins each line of another formatter with its priority, such as `<4>`, which the journal of systemd reads."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Format one record. A traceback has several lines, and each is an entry of the journal."""
        found = (priority for level, priority in _PRIORITIES if record.levelno >= level)
        prefix = f"<{next(found, _DEBUG_PRIORITY)}>"
        return "\n".join(prefix + line for line in self._formatter.format(record).split("\n"))


def _open_formatter(log_format: str, *, is_journal: bool) -> logging.Formatter:
    if not is_journal:
        return JSONFormatter() if log_format == "json" else logging.Formatter(_TEXT)
    return JournalFormatter(JSONFormatter() if log_format == "json" else logging.Formatter(_TEXT.removeprefix(_TIME)))


def goes_to_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """Whether a file is the stream to the journal that systemd names in JOURNAL_STREAM (systemd.exec(5))."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def begin_logging(settings: Settings) -> None:
    """Log to standard error: the program, its libraries, Python warnings, and the traceback of a crash."""
    handler = logging.StreamHandler()
    is_journal = goes_to_journal(os.environ, _STANDARD_ERROR)
    handler.setFormatter(_open_formatter(settings.log_format, is_journal=is_journal))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_crash


def set_log_level(settings: Settings) -> None:
    """Set the lowest severity that is logged."""
    logging.getLogger().setLevel(settings.log_level.upper())


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger(__name__).critical("the program crashed; please report this", exc_info=(kind, error, trace))


def _encodable(text: str) -> str:
    # Python represents a file name that is not UTF-8 with lone surrogates, which cannot be encoded.
    return text.encode("utf-8", "backslashreplace").decode()
