"""What an operator can do to a running process, for the admin API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Literal

from app.assembly.lifecycle import Lifecycle
from app.assembly.resolving import Parts
from app.assembly.settings import Settings, mask_settings
from app.assembly.settings.sources import names_from_files
from app.cache.address import read_store_path
from app.doi.name import HandleName
from app.errors import CouldNotVerify, InvalidParameter
from app.features.admin.http import AdminActions
from app.features.admin.models import (
    DenyReport,
    DenyRequest,
    EntryReport,
    PrefixRefreshReport,
    PurgeReport,
    PurgeRequest,
    RefreshReport,
    ReloadReport,
)
from app.features.admin.refresh import refresh_prefix
from app.features.admin.show import describe_entry, show_time
from app.features.cache_commands.purge import Selection, count_selected, purge
from app.features.follow.change_feed import ChangeFeed
from app.features.limits.denials import Denials
from app.resolver.demand import Demand
from app.resolver.resolution import Origin


def build_actions(
    parts: Parts,
    lifecycle: Lifecycle,
    denials: Denials,
    clock: Callable[[], float],
    record_page: Callable[[str, int], None],
) -> AdminActions:
    """The actions on one process. A purge reaches the other processes by the store, a denial by a file."""
    settings = parts.settings
    feed = ChangeFeed(read_store_path(settings.store_url), clock, record=record_page)

    async def show(name: HandleName) -> EntryReport | None:
        return await _report_entry(parts, name, clock())

    def find_hiding(name: HandleName) -> str | None:
        return _find_hiding(parts, name, clock())

    async def purge_entries(request: PurgeRequest, name: HandleName | None) -> PurgeReport:
        selection = _selection(request, name)
        result = await (
            count_selected(parts.cache, selection, soft=request.soft)
            if request.dry_run
            else purge(parts.cache, selection, soft=request.soft)
        )
        return PurgeReport(entries=result.count, soft=request.soft, dry_run=request.dry_run)

    async def refresh(name: HandleName) -> RefreshReport:
        return await _refresh(parts, name, clock)

    async def refresh_names(prefix: HandleName, limit: int) -> PrefixRefreshReport:
        result = await refresh_prefix(parts.cache, parts.resolver, prefix, limit=limit)
        return PrefixRefreshReport(
            prefix=prefix.text,
            refreshed=result.refreshed,
            failed=result.failed,
            left_out=result.left_out,
            failure=result.failure,
        )

    def reload() -> ReloadReport:
        if lifecycle.request_reload is None:
            raise InvalidParameter("This process does not reload its settings; restart it.")
        # After the answer, because a reload takes a moment.
        asyncio.get_running_loop().call_soon(lifecycle.request_reload)
        return ReloadReport()

    def deny(request: DenyRequest) -> DenyReport:
        return DenyReport(network=request.network, until=show_time(denials.deny(request.network, request.seconds)))

    def show_settings() -> dict[str, Any]:
        secrets = names_from_files(os.environ, Settings.model_fields)
        return dict(mask_settings(lifecycle.settings, secrets))

    actions = show, find_hiding, purge_entries, refresh, refresh_names, reload, deny, show_settings
    return AdminActions(*actions, feed.read)


def _selection(request: PurgeRequest, name: HandleName | None) -> Selection:
    if name is None:
        return Selection(negative=request.negative, everything=request.all)
    return Selection(prefix=name) if request.prefix is not None else Selection(names=(name,))


async def _refresh(parts: Parts, name: HandleName, clock: Callable[[], float]) -> RefreshReport:
    """Query the upstream now. An upstream that is a proxy queries a primary server (`auth`)."""
    try:
        resolution = await parts.resolver.resolve(name, Demand(authoritative=True))
    except CouldNotVerify as failure:
        return RefreshReport(doi=name.key, refreshed=False, failure=failure.token)
    failure_token = None if resolution.failure is None else resolution.failure.token
    entry = await _report_entry(parts, name, clock())
    return RefreshReport(
        doi=name.key, refreshed=resolution.origin is Origin.BYPASSED, failure=failure_token, entry=entry
    )


async def _report_entry(parts: Parts, name: HandleName, now: float) -> EntryReport | None:
    """The cached answer about a name, as an operator sees it. None without one."""
    cached = parts.cache.peek(name.key)
    newest = await parts.cache.reread(name.key)
    if newest is None:
        return None
    tier: Literal["memory", "store"] = "memory" if newest is cached else "store"
    return EntryReport(**describe_entry(newest, now), tier=tier, hidden_by=_find_hiding(parts, name, now))


def _find_hiding(parts: Parts, name: HandleName, now: float) -> str | None:
    """File and line of the local record that wins over the cache."""
    records = parts.resolver.local_records
    return None if records is None else records.find_place(name, now)
