"""The errors of replication."""

from __future__ import annotations

from app.errors import InvalidRequest


class ChangesGone(InvalidRequest):
    """The log of the store does not go back to this cursor; begin without a cursor."""

    status = 410
    token = "changes-gone"
    title = "The log of changes does not go back that far"
