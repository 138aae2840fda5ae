"""The headers of an answer that could not be given: which failure it was, and when to try again."""

from __future__ import annotations

from math import ceil

from doi_proxy.errors import CouldNotVerify, Quota, ShareSpent
from doi_proxy.web.freshness import CACHE_NAME, failure_token
from doi_proxy.web.header import Header


def retry_after(seconds: float) -> Header:
    """`Retry-After` in whole seconds, at least one (RFC 9110, section 10.2.3)."""
    return b"retry-after", b"%d" % max(1, ceil(seconds))


def seconds_to_wait(failure: CouldNotVerify) -> int | None:
    """The value of `Retry-After`. None if it is not known when to try again."""
    return None if failure.retry_after is None else max(1, ceil(failure.retry_after))


def quota_headers(quota: Quota, seconds: float) -> tuple[Header, ...]:
    """The headers of a 429: when to try again, the limit, and what is left of it.

    RateLimit and RateLimit-Policy are structured fields (draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4).
    """
    return (
        retry_after(seconds),
        (b"ratelimit-policy", f'"{quota.name}";q={quota.amount};w={quota.window}'.encode()),
        (b"ratelimit", f'"{quota.name}";r=0;t={max(1, ceil(seconds))}'.encode()),
        # In addition to those that every answer exposes (WHATWG Fetch, section 3.3.3).
        (b"access-control-expose-headers", b"RateLimit, RateLimit-Policy"),
    )


def failure_headers(failure: CouldNotVerify) -> tuple[Header, ...]:
    """The headers of "could not verify": the failure (RFC 9209), and when to try again."""
    status = f'{CACHE_NAME}; error={failure.proxy_error}; details="{failure_token(failure)}"'
    if isinstance(failure, ShareSpent):
        again = quota_headers(failure.quota, failure.retry_after)
    else:
        wait = seconds_to_wait(failure)
        again = () if wait is None else (retry_after(wait),)
    return ((b"proxy-status", status.encode()), *again)
