"""What a store remembers about the parents that it follows (`doi-proxy cache pull`)."""

from __future__ import annotations

from typing import Final

import msgspec

#: Limit of the parents that a store shows. A child has one, or a few.
MAX_PARENTS: Final = 100


class ParentState(msgspec.Struct, frozen=True):
    """How far a store has the changes of one parent. It is in the store itself: an empty store begins again."""

    #: The URL of the parent, without a password.
    url: str
    cursor: str
    #: When a pull last had all changes of the parent, in seconds since the epoch. 0.0 if none has had yet.
    completed_at: float = 0.0
