"""The counter of refused clients, which the limits, lists and the core's budget increment."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import CounterData

#: The limits that can refuse a client: its share of upstream queries, its request rate, the deny list, `auth` or
#: `cert`, and open lists.
REASONS: Final = ("share", "rate", "denied", "bypass", "batches")
REFUSED: Final = CounterData(
    "client_refusals", "Answers refused because their client is over a limit or on the deny list.", "reason", REASONS
)
