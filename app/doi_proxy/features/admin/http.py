"""The admin API: look at an entry, refresh, purge, reload, deny a client. FastAPI behind a gate (see admin_gate)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Request
from starlette.exceptions import HTTPException

from doi_names.errors import InvalidName, NotADOI
from doi_names.name import HandleName
from doi_names.presentation import read_path, read_typed
from doi_proxy.endpoints.deferred_route import DeferredRoute
from doi_proxy.endpoints.fastapi_errors import add_errors
from doi_proxy.endpoints.operators import audit
from doi_proxy.errors import DoiProxyError
from doi_proxy.features.admin import models
from doi_proxy.features.admin.refresh import require_name
from doi_proxy.web.media_types import PROBLEM

#: The path of an entry, before the name.
ENTRIES: Final = b"/admin/entries/"


@dataclass(frozen=True, slots=True)
class AdminActions:
    """What an operator can do. Each action raises errors of doi_proxy.errors."""

    show: Callable[[HandleName], Awaitable[models.EntryReport | None]]
    #: File and line of the local record that answers in place of the cache.
    find_hiding: Callable[[HandleName], str | None]
    purge: Callable[[models.PurgeRequest, HandleName | None], Awaitable[models.PurgeReport]]
    refresh: Callable[[HandleName], Awaitable[models.RefreshReport]]
    #: The names under a prefix, at most so many.
    refresh_prefix: Callable[[HandleName, int], Awaitable[models.PrefixRefreshReport]]
    reload: Callable[[], models.ReloadReport]
    deny: Callable[[models.DenyRequest], models.DenyReport]
    list_denials: Callable[[], models.DenialsReport]
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
    async def show_entry(request: Request, doi: Annotated[str, Path(examples=["10.1000/182"])]) -> models.EntryReport:
        name = read_path(request.scope["raw_path"][len(ENTRIES) - 1 :])
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
    async def purge(request: Request, body: models.PurgeRequest) -> models.PurgeReport:
        report = await actions.purge(body, _selected_name(body))
        audit(request, "purge", body.model_dump(exclude_defaults=True), f"{report.entries} entries")
        return report

    @app.post(
        "/admin/refresh",
        tags=["Operate"],
        summary="Fetch a record, or those of a prefix, from the upstream now",
        response_description="What was fetched.",
    )
    async def refresh(
        request: Request, body: models.RefreshRequest
    ) -> models.RefreshReport | models.PrefixRefreshReport:
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
    async def reload(request: Request) -> models.ReloadReport:
        report = actions.reload()
        audit(request, "reload", {}, "reloading")
        return report

    @app.post(
        "/admin/deny",
        tags=["Operate"],
        summary="Refuse the requests of a network for a time",
        response_description="The end of the denial.",
    )
    async def deny(request: Request, body: models.DenyRequest) -> models.DenyReport:
        report = actions.deny(body)
        audit(request, "deny", body.model_dump(), f"until {report.until}")
        return report

    @app.get(
        "/admin/deny",
        tags=["Operate"],
        summary="List the networks that are denied for a time",
        response_description="The denials in force. Those of client_deny_file are not among them.",
    )
    async def list_denials(request: Request) -> models.DenialsReport:
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


def _selected_name(body: models.PurgeRequest) -> HandleName | None:
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
