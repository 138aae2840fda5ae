"""The errors of lists of names."""

from __future__ import annotations

from doi_proxy.errors import TooManyRequests


class TooManyBatches(TooManyRequests):
    """Too many lists are being answered; wait for one of them."""

    token = "too-many-batches"
    title = "Too many lists are being answered"
