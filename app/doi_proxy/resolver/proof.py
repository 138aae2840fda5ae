"""Decides which cached answers prove themselves by a signature."""

from __future__ import annotations

from typing import TypeGuard

from doi_proxy.cache.entry import Entry
from doi_proxy.upstream.source import Verification


def needs_proof(certified: bool, verification: Verification) -> bool:
    """Whether a signature must prove an answer: if the request says so (`certified`), or always."""
    return verification == "always" or (certified and verification != "never")


def proves(entry: Entry | None, now: float, max_age: float | None = None) -> TypeGuard[Entry]:
    """Whether an entry answers `cert`: it is verified, fresh, and at most `max_age` seconds old."""
    if entry is None or not entry.is_proof(now):
        return False
    return max_age is None or now - entry.fetched_at <= max_age
