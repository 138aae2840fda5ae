"""The counter of redirects that a rule of the library applies to."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.library.copy import Outcome
from doi_proxy.system.meter import CounterData

COPIES: Final = CounterData(
    "library_copies",
    "Redirects that a library rule applies to, by outcome.",
    "outcome",
    tuple(outcome.value for outcome in Outcome if outcome is not Outcome.NOT_CONCERNED),
)
