"""The admin API: look at an entry, refresh, purge, reload, deny a client. FastAPI behind a gate (see gate.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_network
from math import floor
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Path, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.exceptions import HTTPException

from doi_names.errors import InvalidName, NotADOI
from doi_names.name import HandleName
from doi_names.presentation import read_path, read_typed
from doi_proxy.cache.entry import Entry
from doi_proxy.endpoints import DeferredRoute, add_errors, audit
from doi_proxy.errors import CouldNotVerify, DoiProxyError, InvalidParameter
from doi_proxy.features.admin.purge import Selection, count_selected, purge, refresh_prefix, require_name
from doi_proxy.features.feature import Context, Core
from doi_proxy.features.limits.feature import Limits
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.resolution import Conditions, Origin
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


class PrefixRefreshReport(BaseModel):
    """The result of the refresh of a prefix."""

    prefix: str
    refreshed: int = Field(description="Names for which the upstream answered.")
    failed: int = Field(description="Names for which it did not. The cache keeps their entries.")
    left_out: int = Field(description="Names of the cache beyond `limit`, and those after the refresh was given up.")
    failure: str | None = Field(None, description="The token of the last failure, as in Cache-Status.")


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


def describe_entry(entry: Entry, now: float) -> dict[str, Any]:
    """The name, the state, the times and the values of an entry. `now` is in seconds since the epoch.

    What is not known is None, such as when a record of a file without times was fetched.
    """
    ends = claims.fresh_until(entry)
    registry = {} if entry.agency is None else {"agency": entry.agency}
    values = msgspec.json.decode(entry.answer.values) if entry.answer.code is ResponseCode.SUCCESS else []
    return {
        "doi": entry.key,
        "state": claims.find_currency(entry, now).value,
        "response_code": int(entry.answer.code),
        "fetched": _show_known(claims.dated_at(entry)),
        "fresh_until": _show_known(ends),
        "stale_until": show_time(entry.stale_until),
        "age": claims.age(entry, now),
        "ttl": None if ends is None else floor(ends - now),
        "verified": entry.is_proof(now),
        "values": values,
        **registry,
    }


def _show_known(seconds: float | None) -> str | None:
    return None if seconds is None else show_time(seconds)


def show_time(seconds: float) -> str:
    """A time in seconds since the epoch as ISO 8601 in UTC (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class AdminActions:
    """What an operator can do. Each action raises errors of doi_proxy.errors."""

    show: Callable[[HandleName], Awaitable[EntryReport | None]]
    #: File and line of the local record that answers in place of the cache.
    find_hiding: Callable[[HandleName], str | None]
    purge: Callable[[PurgeRequest, HandleName | None], Awaitable[PurgeReport]]
    refresh: Callable[[HandleName], Awaitable[RefreshReport]]
    #: The names under a prefix, at most so many.
    refresh_prefix: Callable[[HandleName, int], Awaitable[PrefixRefreshReport]]
    reload: Callable[[], ReloadReport]
    deny: Callable[[DenyRequest], DenyReport]
    list_denials: Callable[[], DenialsReport]
    settings: Callable[[], dict[str, Any]]


def create_admin(version: str, actions: AdminActions, base: str) -> FastAPI:
    """The FastAPI application of the admin API. `base` is the path of this resolver."""
    app = FastAPI(
        title="doi-proxy admin API",
        version=version,
        docs_url=None,
        redoc_url=None,
        openapi_url="/admin/openapi.json",
        redirect_slashes=False,
    )
    app.router.route_class = DeferredRoute
    add_errors(app, base, _audit_error)
    _add_cache(app, actions)
    _add_service(app, actions)
    return app


def _add_cache(app: FastAPI, actions: AdminActions) -> None:
    @app.get(
        "/admin/entries/{doi:path}",
        tags=["Operate"],
        summary="Show the cached answer about a name",
        response_description="The entry.",
        responses={404: {"description": "The cache has no entry for the name.", "content": {PROBLEM: {}}}},
    )
    async def show_entry(request: Request, doi: Annotated[str, Path(examples=["10.1000/182"])]) -> EntryReport:
        # The path of an entry, before the name.
        name = read_path(request.scope["raw_path"][len(b"/admin/entries/") - 1 :])
        report = await actions.show(name)
        audit(request, "show", {"doi": name.text}, "absent" if report is None else report.state)
        if report is None:
            local = actions.find_hiding(name)
            hint = "" if local is None else f"; the local record in {local} answers"
            raise HTTPException(404, f"The cache has no entry for {name.text}{hint}")
        return report

    @app.post(
        "/admin/purge",
        tags=["Operate"],
        summary="Delete entries, or make them stale",
        response_description="How many entries it concerned.",
    )
    async def purge(request: Request, body: PurgeRequest) -> PurgeReport:
        report = await actions.purge(body, _selected_name(body))
        pending = "; the store failed and gets the purge once it is back" if report.pending else ""
        audit(request, "purge", body.model_dump(exclude_defaults=True), f"{report.entries} entries{pending}")
        return report

    @app.post(
        "/admin/refresh",
        tags=["Operate"],
        summary="Fetch a record, or those of a prefix, from the upstream now",
        response_description="What was fetched.",
    )
    async def refresh(request: Request, body: RefreshRequest) -> RefreshReport | PrefixRefreshReport:
        what = body.model_dump(exclude_defaults=True)
        if body.prefix is not None:
            names = await actions.refresh_prefix(_read_prefix(body.prefix), body.limit)
            result = f"{names.refreshed} refreshed, {names.failed} failed, {names.left_out} left out"
            audit(request, "refresh", what, result)
            return names
        report = await actions.refresh(require_name(read_typed(body.doi or "")))
        audit(request, "refresh", what, report.failure or "refreshed")
        return report


def _add_service(app: FastAPI, actions: AdminActions) -> None:
    @app.post(
        "/admin/reload",
        tags=["Operate"],
        summary="Reload settings and files, as SIGHUP does",
        response_description="The reload has begun.",
    )
    async def reload(request: Request) -> ReloadReport:
        report = actions.reload()
        audit(request, "reload", {}, "reloading")
        return report

    @app.post(
        "/admin/deny",
        tags=["Operate"],
        summary="Refuse the requests of a network for a time",
        response_description="The end of the denial.",
    )
    async def deny(request: Request, body: DenyRequest) -> DenyReport:
        report = actions.deny(body)
        audit(request, "deny", body.model_dump(), f"until {report.until}")
        return report

    @app.get(
        "/admin/deny",
        tags=["Operate"],
        summary="List the networks that are denied for a time",
        response_description="The denials in force. Those of client_deny_file are not among them.",
    )
    async def list_denials(request: Request) -> DenialsReport:
        report = actions.list_denials()
        audit(request, "denials", {}, f"{len(report.denied)} shown")
        return report

    @app.get(
        "/admin/settings",
        tags=["Operate"],
        summary="Show the settings in force, with secrets masked",
        response_description="The settings.",
    )
    async def show_settings(request: Request) -> dict[str, Any]:
        audit(request, "settings", {}, "shown")
        return actions.settings()


def _audit_error(request: Request, error: DoiProxyError) -> None:
    audit(request, request.method, {"path": request.scope["path"]}, f"{error.status} {error.message}")


def _selected_name(body: PurgeRequest) -> HandleName | None:
    """The name or the prefix of a purge. Raises InvalidName."""
    if body.doi is not None:
        return read_typed(body.doi)
    return None if body.prefix is None else _read_prefix(body.prefix)


def _read_prefix(text: str) -> HandleName:
    """The prefix in a request. Raises NotADOI."""
    try:
        prefix = HandleName(text.rstrip("/"))
    except InvalidName:
        prefix = None
    if prefix is None or not prefix.is_prefix:
        raise NotADOI(f"{text[:80]!r} is not a DOI prefix; a DOI prefix looks like 10.1000.")
    return prefix


def build_actions(context: Context, core: Core, limits: Limits) -> AdminActions:
    """The actions on one process. A purge reaches other instances by the store, and a denial does not."""
    clock, reloads = context.clock, context.reloads

    async def show(name: HandleName) -> EntryReport | None:
        return await _report_entry(core, name, clock())

    def find_hiding(name: HandleName) -> str | None:
        return _find_hiding(core, name, clock())

    async def purge_entries(request: PurgeRequest, name: HandleName | None) -> PurgeReport:
        selection = _selection(request, name)
        result = await (
            count_selected(core.cache, selection, soft=request.soft)
            if request.dry_run
            else purge(core.cache, selection, soft=request.soft)
        )
        if not request.dry_run:
            context.events.record("purge", clock(), result.count)
        pending = not request.dry_run and core.cache.has_missed_purges
        return PurgeReport(entries=result.count, soft=request.soft, dry_run=request.dry_run, pending=pending)

    async def refresh(name: HandleName) -> RefreshReport:
        return await _refresh(core, name, clock)

    async def refresh_names(prefix: HandleName, limit: int) -> PrefixRefreshReport:
        result = await refresh_prefix(core.cache, core.resolver, prefix, limit=limit)
        return PrefixRefreshReport(
            prefix=prefix.text,
            refreshed=result.refreshed,
            failed=result.failed,
            left_out=result.left_out,
            failure=result.failure,
        )

    def reload() -> ReloadReport:
        if reloads.request_reload is None:
            raise InvalidParameter("This process does not reload its settings; restart it.")
        # After the answer, because a reload takes a moment.
        asyncio.get_running_loop().call_soon(reloads.request_reload)
        return ReloadReport()

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


def _deny(context: Context, limits: Limits, request: DenyRequest) -> DenyReport:
    report = DenyReport(network=request.network, until=show_time(limits.deny(request.network, request.seconds)))
    if request.seconds:
        context.events.record("deny", context.clock())
    return report


def _list_denials(limits: Limits) -> DenialsReport:
    ends = sorted(limits.read_denials().items())
    return DenialsReport(denied=[DenyReport(network=network, until=show_time(end)) for network, end in ends])


def _selection(request: PurgeRequest, name: HandleName | None) -> Selection:
    if name is None:
        return Selection(negative=request.negative, everything=request.all)
    return Selection(prefix=name) if request.prefix is not None else Selection(names=(name,))


async def _refresh(core: Core, name: HandleName, clock: Callable[[], float]) -> RefreshReport:
    """Query the upstream now. An upstream that is a proxy queries a primary server (`auth`)."""
    try:
        resolution = await core.resolver.resolve(name, Conditions(authoritative=True))
    except CouldNotVerify as failure:
        return RefreshReport(doi=name.key, refreshed=False, failure=failure.token)
    failure_token = None if resolution.failure is None else resolution.failure.token
    entry = await _report_entry(core, name, clock())
    return RefreshReport(
        doi=name.key, refreshed=resolution.origin is Origin.BYPASSED, failure=failure_token, entry=entry
    )


async def _report_entry(core: Core, name: HandleName, now: float) -> EntryReport | None:
    """The cached answer about a name, as an operator sees it. None without one."""
    cached = core.cache.peek(name.key)
    newest = await core.cache.find(name.key, newest=True)
    if newest is None:
        return None
    tier: Literal["memory", "store"] = "memory" if newest is cached else "store"
    return EntryReport(**describe_entry(newest, now), tier=tier, hidden_by=_find_hiding(core, name, now))


def _find_hiding(core: Core, name: HandleName, now: float) -> str | None:
    """File and line of the local record that wins over the cache."""
    records = core.resolver.local_records
    return None if records is None else records.find_place(name, now)
