"""What an operator can do to a running process, for the admin API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Literal

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify, InvalidParameter
from doi_proxy.features.admin import models
from doi_proxy.features.admin.http import AdminActions
from doi_proxy.features.admin.purge import Selection, count_selected, purge
from doi_proxy.features.admin.refresh import refresh_prefix
from doi_proxy.features.admin.show import describe_entry, show_time
from doi_proxy.features.feature import Context, Core
from doi_proxy.features.limits.feature import Limits
from doi_proxy.resolver.options import Conditions
from doi_proxy.resolver.resolution import Origin


def build_actions(context: Context, core: Core, limits: Limits) -> AdminActions:
    """The actions on one process. A purge reaches other instances by the store, and a denial does not."""
    clock, reloads = context.clock, context.reloads

    async def show(name: HandleName) -> models.EntryReport | None:
        return await _report_entry(core, name, clock())

    def find_hiding(name: HandleName) -> str | None:
        return _find_hiding(core, name, clock())

    async def purge_entries(request: models.PurgeRequest, name: HandleName | None) -> models.PurgeReport:
        selection = _selection(request, name)
        result = await (
            count_selected(core.cache, selection, soft=request.soft)
            if request.dry_run
            else purge(core.cache, selection, soft=request.soft)
        )
        if not request.dry_run:
            context.events.record("purge", clock(), result.count)
        return models.PurgeReport(entries=result.count, soft=request.soft, dry_run=request.dry_run)

    async def refresh(name: HandleName) -> models.RefreshReport:
        return await _refresh(core, name, clock)

    async def refresh_names(prefix: HandleName, limit: int) -> models.PrefixRefreshReport:
        result = await refresh_prefix(core.cache, core.resolver, prefix, limit=limit)
        return models.PrefixRefreshReport(
            prefix=prefix.text,
            refreshed=result.refreshed,
            failed=result.failed,
            left_out=result.left_out,
            failure=result.failure,
        )

    def reload() -> models.ReloadReport:
        if reloads.request_reload is None:
            raise InvalidParameter("This process does not reload its settings; restart it.")
        # After the answer, because a reload takes a moment.
        asyncio.get_running_loop().call_soon(reloads.request_reload)
        return models.ReloadReport()

    return AdminActions(
        show,
        find_hiding,
        purge_entries,
        refresh,
        refresh_names,
        reload,
        partial(_deny, context, limits),
        partial(_list_denials, limits),
        reloads.show_settings,
    )


def _deny(context: Context, limits: Limits, request: models.DenyRequest) -> models.DenyReport:
    report = models.DenyReport(network=request.network, until=show_time(limits.deny(request.network, request.seconds)))
    if request.seconds:
        context.events.record("deny", context.clock())
    return report


def _list_denials(limits: Limits) -> models.DenialsReport:
    ends = sorted(limits.read_denials().items())
    return models.DenialsReport(
        denied=[models.DenyReport(network=network, until=show_time(end)) for network, end in ends]
    )


def _selection(request: models.PurgeRequest, name: HandleName | None) -> Selection:
    if name is None:
        return Selection(negative=request.negative, everything=request.all)
    return Selection(prefix=name) if request.prefix is not None else Selection(names=(name,))


async def _refresh(core: Core, name: HandleName, clock: Callable[[], float]) -> models.RefreshReport:
    """Query the upstream now. An upstream that is a proxy queries a primary server (`auth`)."""
    try:
        resolution = await core.resolver.resolve(name, Conditions(authoritative=True))
    except CouldNotVerify as failure:
        return models.RefreshReport(doi=name.key, refreshed=False, failure=failure.token)
    failure_token = None if resolution.failure is None else resolution.failure.token
    entry = await _report_entry(core, name, clock())
    return models.RefreshReport(
        doi=name.key, refreshed=resolution.origin is Origin.BYPASSED, failure=failure_token, entry=entry
    )


async def _report_entry(core: Core, name: HandleName, now: float) -> models.EntryReport | None:
    """The cached answer about a name, as an operator sees it. None without one."""
    cached = core.cache.peek(name.key)
    newest = await core.cache.get(name.key, newest=True)
    if newest is None:
        return None
    tier: Literal["memory", "store"] = "memory" if newest is cached else "store"
    return models.EntryReport(**describe_entry(newest, now), tier=tier, hidden_by=_find_hiding(core, name, now))


def _find_hiding(core: Core, name: HandleName, now: float) -> str | None:
    """File and line of the local record that wins over the cache."""
    records = core.resolver.local_records
    return None if records is None else records.find_place(name, now)
