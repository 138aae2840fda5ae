"""Valkey and Redis stores, for proxies of several machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Feature

if TYPE_CHECKING:
    from doi_proxy.cache.store import Store
    from doi_proxy.store.file import StoreOptions

#: The schemes of a store URL. A socket has no TLS.
SCHEMES: Final = frozenset(
    f"{first}{kind}"
    for first in ("redis", "rediss", "valkey", "valkeys")
    for kind in ("", "+unix", "+cluster", "+sentinel")
    if not (kind == "+unix" and first in ("rediss", "valkeys"))
)


def open_server(url: str, options: StoreOptions) -> Store:
    """Open the store of a URL. No connection is opened yet. Raises ConfigurationError."""
    from redis.exceptions import RedisError

    from doi_proxy.features.valkey.store import ValkeyStore

    # The URL may contain a password, so it is not part of a message.
    try:
        return ValkeyStore(url, clock=options.clock, timeout=options.timeout, read_only=options.read_only)
    except (ValueError, TypeError, AttributeError, RedisError) as error:
        raise ConfigurationError(f"The store URL is invalid: {error}; see docs/valkey.md.") from error


class Valkey(Feature):
    """The stores of `redis:` and `valkey:` URLs."""

    name = "valkey"
    summary = "Valkey and Redis stores, for proxies of several machines"
    stores = dict.fromkeys(SCHEMES, open_server)
