"""What a signature proves, and for how long."""

from __future__ import annotations

import pytest

from doi_proxy.cache.entry import Entry, expire_unverified
from doi_proxy.resolver.resolution import needs_proof, proves
from doi_proxy.upstream.source import Verification
from tests.cache.entries import NOW, entry, missing, verified


@pytest.mark.parametrize(
    ("verification", "certified", "needed"),
    [
        ("never", False, False),
        ("never", True, False),
        ("when-asked", False, False),
        ("when-asked", True, True),
        ("lookups", False, False),
        ("lookups", True, True),
        ("always", False, True),
        ("always", True, True),
    ],
)
def test_the_setting_and_the_request_say_whether_a_proof_is_needed(
    verification: Verification, certified: bool, needed: bool
) -> None:
    assert needs_proof(certified, verification) is needed


@pytest.mark.parametrize(
    ("one", "proof"),
    [
        (None, False),
        (entry(ttl=60), False),
        (verified(entry(ttl=60)), True),
        (verified(missing()), True),
        (verified(entry(ttl=0)), False),
        (verified(entry(fetched_at=NOW - 60, ttl=60)), False),
    ],
)
def test_a_verified_entry_is_a_proof_until_its_ttl_ends(one: Entry | None, proof: bool) -> None:
    assert proves(one, NOW) is proof


@pytest.mark.parametrize(("max_age", "proof"), [(29, False), (30, True), (None, True)])
def test_a_proof_is_as_young_as_the_request_says(max_age: float | None, proof: bool) -> None:
    assert proves(verified(entry(fetched_at=NOW - 30)), NOW, max_age) is proof


def test_an_entry_that_is_not_verified_can_be_stale_from_the_start() -> None:
    expired = expire_unverified(entry())
    assert (expired.is_fresh(NOW), expired.is_usable(NOW), expired.answer) == (False, True, entry().answer)
    assert not expire_unverified(missing()).is_usable(NOW)
    for unchanged in (verified(entry()), verified(missing()), expired):
        assert expire_unverified(unchanged) is unchanged
