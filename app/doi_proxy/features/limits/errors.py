"""The errors of limits of clients."""

from __future__ import annotations

from doi_proxy.errors import TooManyRequests


class TooManyBypasses(TooManyRequests):
    """This client bypassed the cache too often; wait, or send the request without auth and cert."""

    token = "too-many-bypasses"
    title = "The client bypassed the cache too often"
