"""The access log."""

from __future__ import annotations

import secrets
import time
from typing import Final

from app.features.access_log.access_log import AccessLog, write_to_standard_output
from app.features.access_log.settings import AccessLogSettings
from app.features.feature import Context, Feature, Opened


def open_access_log(context: Context) -> Opened:
    """The stage that logs each answer."""
    form = context.settings.group(AccessLogSettings).access_log
    log = context.find(AccessLog)
    if log is None and form != "off":
        log = AccessLog(
            form=form,
            privacy_level=context.facts.privacy_level,
            clock=context.clock,
            timer=time.perf_counter,
            new_id=lambda: secrets.token_hex(8),
            write=write_to_standard_output,
        )
    return Opened(stages=() if log is None else (log,))


FEATURE: Final = Feature(
    "access_log", "one line for each request, with as much as the privacy level allows", open=open_access_log
)
