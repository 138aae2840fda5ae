"""The counter of messages to the native listener."""

from __future__ import annotations

from typing import Final

from doi_proxy.system.meter import CounterData

#: A record or "not found"; a name or an operation that this service does not answer; trouble, which says nothing about
#: a name; what UDP does not answer.
RESULTS: Final = ("answered", "refused", "failed", "dropped")
MESSAGES: Final = CounterData(
    "native_listener_messages", "Messages to the native listener, by result.", "result", RESULTS
)
