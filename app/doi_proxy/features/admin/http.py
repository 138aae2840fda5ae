"""The admin API: look at an entry, refresh, purge, reload, deny a client. FastAPI behind a gate (see gate.py)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from ipaddress import ip_network
from math import floor
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Query, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.exceptions import HTTPException

from doi_names.errors import InvalidName, NotADOI
from doi_names.name import HandleName
from doi_names.presentation import read_typed
from doi_proxy.cache.entry import Entry
from doi_proxy.endpoints import DeferredRoute, add_errors, audit
from doi_proxy.errors import DoiProxyError, InvalidParameter
from doi_proxy.features.admin.purge import (
    PrefixRefreshReport,
    Selection,
    count_selected,
    fetch_now,
    purge,
    refresh_prefix,
    require_name,
)
from doi_proxy.features.feature import Context, Core
from doi_proxy.features.limits.feature import Limits
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.resolution import Origin
from doi_proxy.upstream.source import Priority
from doi_proxy.web.media_types import PROBLEM
from handle_protocol.referral import ResponseCode

#: Names that a refresh of a prefix fetches by default, and the most that it can fetch.
REFRESH_LIMIT = 100
MAX_REFRESHED = 1_000
#: Characters of a name or prefix in a request.
_MAX_NAME = 4_096


class _Request(BaseModel):
    """A body. An unknown member is an error, so a misspelled condition does nothing."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class PurgeRequest(_Request):
    """Which entries to purge: exactly one of `doi`, `prefix`, `negative` and `all`."""

    doi: str | None = Field(None, max_length=_MAX_NAME, description="A name, in any form.", examples=["10.1000/182"])
    prefix: str | None = Field(None, max_length=_MAX_NAME, description="All names under a prefix, such as `10.1000`.")
    negative: bool = Field(False, description="All names that were not found, or have no values.")
    all: bool = Field(False, description="All entries.")
    soft: bool = Field(False, description="Make the entries stale and keep them for outages, instead of deleting them.")
    dry_run: bool = Field(False, description="Count the entries, and change nothing.")

    @model_validator(mode="after")
    def _select_once(self) -> PurgeRequest:
        if sum((self.doi is not None, self.prefix is not None, self.negative, self.all)) != 1:
            raise ValueError("exactly one of doi, prefix, negative and all must be set")
        return self


class RefreshRequest(_Request):
    """What to fetch from the upstream now: exactly one of `doi` and `prefix`."""

    doi: str | None = Field(None, max_length=_MAX_NAME, description="A name, in any form.", examples=["10.1000/182"])
    prefix: str | None = Field(
        None, max_length=_MAX_NAME, description="The names under a prefix that the cache has, such as `10.1000`."
    )
    limit: int = Field(
        REFRESH_LIMIT,
        ge=1,
        le=MAX_REFRESHED,
        description="Largest number of names of a prefix. The oldest answers come first.",
    )

    @model_validator(mode="after")
    def _select_once(self) -> RefreshRequest:
        if (self.doi is None) == (self.prefix is None):
            raise ValueError("exactly one of doi and prefix must be set")
        return self


class DenyRequest(_Request):
    """The network to deny, and for how long."""

    network: str = Field(max_length=64, description="A network or an address.", examples=["192.0.2.0/24"])
    # Seconds for which a client can be denied. Beyond that, `client_deny_file` is the place.
    seconds: float = Field(ge=0, le=30 * 86_400.0, description="Seconds from now; `0` ends a denial.", examples=[600])

    @field_validator("network")
    @classmethod
    def _read_network(cls, value: str) -> str:
        try:
            network = ip_network(value.strip())
        except ValueError as error:
            raise ValueError(f"not a network such as 192.0.2.0/24 or 2001:db8::/32: {error}") from error
        if not network.prefixlen:
            raise ValueError(f"{network} has every client; name a smaller network, or stop the service instead")
        return str(network)


class EntryReport(BaseModel):
    """The cached answer about a name."""

    doi: str = Field(description="The name in its canonical form.", examples=["10.1000/182"])
    state: Literal["fresh", "stale", "expired", "registry"] = Field(
        description="`stale` and `registry` are served only during an outage. `registry` is from an agency's file."
    )
    response_code: int = Field(description="1 found, 100 not found, 200 no values.")
    tier: Literal["memory", "store"] = Field(description="Where the entry was found: this process's memory, the store.")
    fetched: str | None = Field(
        description="When the upstream gave the answer, in UTC; the date of the record if it is from an agency's file. "
        "Null if it is not known, as of a seed without times.",
        examples=["2026-01-01T12:00:00Z"],
    )
    fresh_until: str | None = Field(description="The end of its TTL, in UTC; null if it is not known.")
    stale_until: str
    age: int | None = Field(description="Seconds since `fetched`; null if it is not known.")
    ttl: int | None = Field(
        description="Seconds until the end of its TTL; negative for a stale entry, null if it is not known."
    )
    verified: bool = Field(description="Whether a handle server's signature proves the answer, until its TTL ends.")
    values: list[dict[str, Any]] = Field(description="The record's values, as the upstream sent them.")
    agency: str | None = Field(None, description="The registration agency whose file the record is from.")
    hidden_by: str | None = Field(
        None,
        description="File and line of the local record that wins over this entry.",
        examples=["a.toml:3"],
    )


class PurgeReport(BaseModel):
    """The result of a purge."""

    entries: int = Field(description="Entries that were purged, or that would be.")
    soft: bool
    dry_run: bool
    pending: bool = Field(
        description="Whether the store failed: it and other instances get the purge when it is back. A restart before "
        "that loses it."
    )


class RefreshReport(BaseModel):
    """The result of a refresh."""

    doi: str
    refreshed: bool = Field(description="Whether the upstream answered. If not, the cache keeps its entry.")
    failure: str | None = Field(None, description="The token of the failure, as in Cache-Status.")
    entry: EntryReport | None = None


class DenyReport(BaseModel):
    """The result of a denial."""

    network: str
    until: str = Field(description="The end of the denial, in UTC.")


class DenialsReport(BaseModel):
    """The denials in force."""

    denied: list[DenyReport]


class ReloadReport(BaseModel):
    """The result of a reload. What the process makes of the new settings is in its log."""

    reloading: bool = True


def report_entry(
    entry: Entry, now: float, tier: Literal["memory", "store"], hidden_by: str | None = None
) -> EntryReport:
    """The name, the state, the times and the values of an entry. `now` is in seconds since the epoch.

    What is not known is None, such as when a record of a file without times was fetched.
    """
    ends = claims.fresh_until(entry)
    return EntryReport(
        doi=entry.key,
        state=claims.find_currency(entry, now).value,
        response_code=int(entry.answer.code),
        tier=tier,
        fetched=_show_known(claims.dated_at(entry)),
        fresh_until=_show_known(ends),
        stale_until=show_time(entry.stale_until),
        age=claims.age(entry, now),
        ttl=None if ends is None else floor(ends - now),
        verified=entry.is_proof(now),
        values=msgspec.json.decode(entry.answer.values) if entry.answer.code is ResponseCode.SUCCESS else [],
        agency=entry.agency,
        hidden_by=hidden_by,
    )


def _show_known(seconds: float | None) -> str | None:
    return None if seconds is None else show_time(seconds)


def show_time(seconds: float) -> str:
    """A time in seconds since the epoch as ISO 8601 in UTC (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def create_admin(version: str, context: Context, core: Core, limits: Limits) -> FastAPI:
    """The FastAPI application of the admin API of one process.

    A purge reaches other instances by the store, and a denial does not.
    """
    app = FastAPI(
        title="doi-proxy admin API",
        version=version,
        docs_url=None,
        redoc_url=None,
        openapi_url="/admin/openapi.json",
        redirect_slashes=False,
    )
    app.router.route_class = DeferredRoute
    add_errors(app, core.link.base, _audit_error)
    _add_cache(app, context, core)
    _add_service(app, context, limits)
    return app


def _add_cache(app: FastAPI, context: Context, core: Core) -> None:
    clock = context.clock

    @app.get(
        "/admin/entries",
        tags=["Operate"],
        summary="Show the cached answer about a name",
        response_description="The entry.",
        responses={404: {"description": "The cache has no entry for the name.", "content": {PROBLEM: {}}}},
        openapi_extra={"x-example": "/admin/entries?doi=10.1000/182"},
    )
    async def show_entry(
        request: Request,
        doi: Annotated[str, Query(max_length=_MAX_NAME, description="A name, in any form.", examples=["10.1000/182"])],
    ) -> EntryReport:
        name = read_typed(doi)
        report = await _find_entry(core, name, clock())
        audit(request, "show", {"doi": name.text}, "absent" if report is None else report.state)
        if report is None:
            local = _find_hiding(core, name, clock())
            hint = "" if local is None else f"; the local record in {local} answers"
            raise HTTPException(404, f"The cache has no entry for {name.text}{hint}")
        return report

    @app.post(
        "/admin/purge",
        tags=["Operate"],
        summary="Delete entries, or make them stale",
        response_description="How many entries it concerned.",
    )
    async def purge_entries(request: Request, body: PurgeRequest) -> PurgeReport:
        change = count_selected if body.dry_run else purge
        count, is_pending = await change(core.cache, _read_selection(body), soft=body.soft), False
        if not body.dry_run:
            context.events.record("purge", clock(), count)
            is_pending = core.cache.has_missed_purges
        pending = "; the store failed and gets the purge once it is back" if is_pending else ""
        audit(request, "purge", body.model_dump(exclude_defaults=True), f"{count} entries{pending}")
        return PurgeReport(entries=count, soft=body.soft, dry_run=body.dry_run, pending=is_pending)

    @app.post(
        "/admin/refresh",
        tags=["Operate"],
        summary="Fetch a record, or those of a prefix, from the upstream now",
        response_description="What was fetched.",
    )
    async def refresh(request: Request, body: RefreshRequest) -> RefreshReport | PrefixRefreshReport:
        what = body.model_dump(exclude_defaults=True)
        if body.prefix is not None:
            names = await refresh_prefix(core.resolver, _read_prefix(body.prefix), limit=body.limit)
            result = f"{names.refreshed} refreshed, {names.failed} failed, {names.left_out} left out"
            audit(request, "refresh", what, result)
            return names
        name = require_name(read_typed(body.doi or ""))
        origin, failure = await fetch_now(core.resolver, name, Priority.PERSON)
        entry = None if origin is None else await _find_entry(core, name, clock())
        is_refreshed = origin is Origin.BYPASSED
        result = "refreshed" if is_refreshed else "not refreshed: a local record answers"
        audit(request, "refresh", what, failure or result)
        return RefreshReport(doi=name.key, refreshed=is_refreshed, failure=failure, entry=entry)


def _add_service(app: FastAPI, context: Context, limits: Limits) -> None:
    @app.post(
        "/admin/reload",
        tags=["Operate"],
        summary="Reload settings and files, as SIGHUP does",
        response_description="The reload has begun.",
    )
    async def reload(request: Request) -> ReloadReport:
        if context.reloads.request_reload is None:
            raise InvalidParameter("This process does not reload its settings; restart it.")
        # After the answer, because a reload takes a moment.
        asyncio.get_running_loop().call_soon(context.reloads.request_reload)
        audit(request, "reload", {}, "reloading")
        return ReloadReport()

    @app.post(
        "/admin/deny",
        tags=["Operate"],
        summary="Refuse the requests of a network for a time",
        response_description="The end of the denial.",
    )
    async def deny(request: Request, body: DenyRequest) -> DenyReport:
        until = show_time(limits.deny(body.network, body.seconds))
        if body.seconds:
            context.events.record("deny", context.clock())
        audit(request, "deny", body.model_dump(), f"until {until}")
        return DenyReport(network=body.network, until=until)

    @app.get(
        "/admin/deny",
        tags=["Operate"],
        summary="List the networks that are denied for a time",
        response_description="The denials in force. Those of client_deny_file are not among them.",
    )
    async def list_denials(request: Request) -> DenialsReport:
        ends = sorted(limits.read_denials().items())
        audit(request, "denials", {}, f"{len(ends)} shown")
        return DenialsReport(denied=[DenyReport(network=network, until=show_time(end)) for network, end in ends])

    @app.get(
        "/admin/settings",
        tags=["Operate"],
        summary="Show the settings in force, with secrets masked",
        response_description="The settings.",
    )
    async def show_settings(request: Request) -> dict[str, Any]:
        audit(request, "settings", {}, "shown")
        return context.reloads.show_settings()


def _audit_error(request: Request, error: DoiProxyError) -> None:
    audit(request, request.method, {"path": request.scope["path"]}, f"{error.status} {error.message}")


def _read_selection(body: PurgeRequest) -> Selection:
    """The entries of a purge. Raises InvalidName."""
    name = None if body.doi is None else read_typed(body.doi)
    prefix = None if body.prefix is None else _read_prefix(body.prefix)
    return Selection(name, prefix, body.negative, body.all)


def _read_prefix(text: str) -> HandleName:
    """The prefix in a request. Raises NotADOI."""
    try:
        prefix = HandleName(text.rstrip("/"))
    except InvalidName:
        prefix = None
    if prefix is None or not prefix.is_prefix:
        raise NotADOI(f"{text[:80]!r} is not a DOI prefix; a DOI prefix looks like 10.1000.")
    return prefix


async def _find_entry(core: Core, name: HandleName, now: float) -> EntryReport | None:
    """The cached answer about a name, as an operator sees it. None without one."""
    cached = core.cache.peek(name.key)
    newest = await core.cache.find(name.key, newest=True)
    if newest is None:
        return None
    return report_entry(newest, now, "memory" if newest is cached else "store", _find_hiding(core, name, now))


def _find_hiding(core: Core, name: HandleName, now: float) -> str | None:
    """File and line of the local record that wins over the cache."""
    records = core.resolver.local_records
    return None if records is None else records.find_place(name, now)
