"""`doi-proxy cache purge`: forgets entries, here and in every running proxy on the same store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.bulk.lists import read_name
from app.cache.tiered import TieredStore
from app.cli.cache_store import check, opened, require_store
from app.doi.name import HandleName
from app.errors import ConfigurationError, InvalidName
from app.handle.answer import ResponseCode
from app.settings import Settings

#: Entries forgotten at the same time.
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Choice:
    """What is purged: names, those under a prefix, what is negative, or all; exactly one of them."""

    names: Sequence[str] = ()
    prefix: HandleName | None = None
    negative: bool = False
    everything: bool = False


async def purge(settings: Settings, choice: Choice) -> int:
    """Forget entries; those who share the store are told within 2 s. Raises ConfigurationError, StoreError."""
    require_store(settings)
    names = [_named(text) for text in choice.names]
    async with opened(settings) as cache:
        if choice.prefix is not None:
            gone = await cache.clear_prefix(choice.prefix.key)
        elif names:
            gone = await _purge_names(cache, names)
        else:
            gone = await _purge_scanned(cache, negative_only=choice.negative)
        await check(cache)
    print(f"purged {gone}")
    return 0


def _named(text: str) -> HandleName:
    """A name that is given. Raises ConfigurationError: then none is purged."""
    try:
        return read_name(text, any_handle=True)
    except InvalidName as error:
        raise ConfigurationError(f"{text!r}: {error.message}") from error


async def _purge_names(cache: TieredStore, names: Sequence[HandleName]) -> int:
    gone = 0
    for name in names:
        existed = await cache.delete(name.key)
        gone += existed
        if not existed:
            print(f"{name.text}: not in the store", file=sys.stderr)
    return gone


async def _purge_scanned(cache: TieredStore, *, negative_only: bool) -> int:
    gone, keys = 0, list[str]()
    async for entry in cache.scan():
        if not negative_only or entry.answer.code is not ResponseCode.SUCCESS:
            keys.append(entry.key)
        if len(keys) == _AT_ONCE:
            gone += await _purge_keys(cache, keys)
            keys.clear()
    return gone + await _purge_keys(cache, keys)


async def _purge_keys(cache: TieredStore, keys: list[str]) -> int:
    # Together, since each waits until it is durable.
    return sum(await asyncio.gather(*(cache.delete(key) for key in keys)))
