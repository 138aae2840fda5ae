"""Eviction from the SQLite store: a hand passes over the entries in the order of their keys.

Each batch of writes moves the hand over a few hundred entries. Expired ones leave. If the store is too large, so does
the quarter of the others that was used longest ago. The times have no index, which would take 30 bytes an entry, and a
write at another place for each use.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

#: Entries that the hand passes in one step, and steps in one transaction. One step takes less than a millisecond. Eight
#: can evict twice as many entries as a batch writes.
_STEP: Final = 512
_MAX_STEPS: Final = 8
#: The part of the entries of one step that may leave because the store is too large.
_PART: Final = 4

_SELECT: Final = "SELECT key, stale_until, last_used, room FROM entries WHERE key > ?"
_AFTER: Final = f"{_SELECT} ORDER BY key LIMIT ?"
_UP_TO: Final = f"{_SELECT} AND key <= ? ORDER BY key LIMIT ?"

#: Key, hard expiry, time of the last use (both in seconds since the epoch), and room. A damaged row can have any type.
Row = tuple[Any, Any, Any, Any]


def evict(connection: sqlite3.Connection, now: float, excess: int) -> None:
    """Move the hand, in the transaction under way. `excess` is the number of bytes by which the store is too large."""
    for _ in range(_MAX_STEPS):
        rows = _move_hand(connection)
        leaving = choose_leaving(rows, now, excess)
        connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key, *_ in leaving])
        excess -= sum(_size(row) for row in leaving)
        if excess <= 0 or not rows:
            return


def choose_leaving(rows: Sequence[Row], now: float, excess: int) -> list[Row]:
    """The rows that leave: those past their hard expiry, and those used longest ago while `excess` is positive."""
    leaving = [row for row in rows if _number(row[1]) <= now]
    excess -= sum(_size(row) for row in leaving)
    rest = sorted((row for row in rows if _number(row[1]) > now), key=lambda row: _number(row[2]))
    for row in rest[: -(-len(rest) // _PART)]:
        if excess <= 0:
            break
        leaving.append(row)
        excess -= _size(row)
    return leaving


def _move_hand(connection: sqlite3.Connection) -> list[Row]:
    """The next entries in the order of their keys. After the last one, the hand begins again."""
    (hand,) = connection.execute("SELECT key FROM hand").fetchone() or ("",)
    rows = connection.execute(_AFTER, (hand, _STEP)).fetchall()
    if len(rows) < _STEP and hand != "":
        rows += connection.execute(_UP_TO, ("", hand, _STEP - len(rows))).fetchall()
    place = rows[-1][0] if len(rows) == _STEP else ""
    if place != hand:
        connection.execute("INSERT OR REPLACE INTO hand VALUES (1, ?)", (place,))
    return rows


def _size(row: Row) -> int:
    return int(_number(row[3]))


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0.0
