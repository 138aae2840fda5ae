"""The token buckets of one process."""

from __future__ import annotations

from app.cache.buckets import Buckets

NOW = 1_700_000_000.0


def test_buckets_do_not_share_tokens() -> None:
    buckets = Buckets()
    assert [buckets.take("a", NOW, 1, 1) for _ in range(2)] == [0.0, 1.0]
    assert buckets.take("b", NOW, 1, 1) == 0.0


def test_a_bucket_that_was_pushed_out_is_full_again() -> None:
    buckets = Buckets()
    for name in ("a", *map(str, range(10_000))):
        buckets.take(name, NOW, 1, 1)
    assert buckets.take("9999", NOW, 1, 1) == 1.0
    assert buckets.take("a", NOW, 1, 1) == 0.0
