"""The errors of texts and lists that cannot be read."""

from __future__ import annotations

from doi_proxy.errors import InvalidRequest


class UnreadableList(InvalidRequest):
    """The list of names cannot be read."""

    token = "unreadable-list"
    title = "The list of names cannot be read"
