"""The counter of requests for restricted values."""

from __future__ import annotations

from typing import Final

from app.features.feature import CounterData

#: What a handle server said about the values; a request that is not for a server; a server that does not accept the
#: identity; an answer or a challenge that cannot be trusted; no answer.
RESULTS: Final = ("answered", "refused", "identity-refused", "untrusted", "failed")
READS: Final = CounterData("restricted_reads", "Requests for restricted values, by result.", "result", RESULTS)
