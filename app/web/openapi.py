"""The description of the name paths for OpenAPI. The application answers them itself, without FastAPI's routing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Path, Query
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from app.resolver.metadata_format import MEDIA_TYPES

#: A member of an operation: a path and query to try.
EXAMPLE: Final = "x-example"

Types = Annotated[
    list[str],
    Query(description="Only values of this type, in either letter case; `URL.` also matches its subtypes. Repeatable."),
]
Indexes = Annotated[list[int], Query(description="Only the value of this index; a union with `type`. Repeatable.")]
Auth = Annotated[str, Query(description="Bypass the cache; the upstream queries a primary server.")]
Cert = Annotated[str, Query(description="Bypass the cache; the upstream returns a certified answer.")]
Name = Annotated[str, Path(description="The name; a slash may be `/` or `%2F`.", examples=["10.1000/182"])]


class HandleValueModel(BaseModel):
    """One value of a record. Other members pass through as the upstream sent them."""

    index: int = Field(examples=[1])
    type: str = Field(examples=["URL"])
    data: dict[str, Any] | str = Field(examples=[{"format": "string", "value": "http://www.doi.org/hb.html"}])
    ttl: int | str | None = Field(None, description="Seconds, or an ISO 8601 time.", examples=[86400])
    timestamp: str | None = Field(None, examples=["2004-01-21T14:14:17Z"])


class HandleAnswerModel(BaseModel):
    """An answer of the handle API."""

    responseCode: int = Field(
        description="1 found, 100 not found, 200 no such values, 2 could not verify, 4 and 102 bad request.",
        examples=[1],
    )
    handle: str | None = Field(None, description="The name as the client spelled it.", examples=["10.1000/182"])
    values: list[HandleValueModel] | None = None
    message: str | None = Field(None, description="Why the request failed.")


class AgencyModel(BaseModel):
    """The registration agency of a name: `RA`, or `status` if the agency is not known."""

    DOI: str = Field(description="The name as the client spelled it.", examples=["10.1000/182"])
    RA: str | None = Field(None, examples=["DataCite"])
    status: str | None = Field(None, examples=["DOI does not exist"])


_COULD_NOT_VERIFY: dict[int | str, dict[str, Any]] = {
    status: {"description": text}
    for status, text in {
        502: "Could not verify: the upstream could not be reached, or its answer is not valid.",
        503: "Could not verify: the budget is spent, or queries to the upstream are paused; see Retry-After.",
        504: "Could not verify: the upstream did not answer in time.",
    }.items()
}


def resolve(
    doi: Name,
    type: Types = [],  # noqa: A002, B006 - names of the handle system; FastAPI copies defaults
    index: Indexes = [],  # noqa: B006
    noredirect: Annotated[str, Query(description="Show the record. The parameter needs no value.")] = "",
    format: Annotated[  # noqa: A002
        str,
        Query(description=f"Redirect to the agency's metadata in this format: {', '.join(MEDIA_TYPES)}."),
    ] = "",
    urlappend: Annotated[str, Query(description="Appended to the target's URL. It cannot change the host.")] = "",
    auth: Auth = "",
    cert: Cert = "",
) -> None:
    """Redirect to the target of a DOI name, or show its record.

    The name can also be written `doi:10.1000/182`, `urn:doi:10.1000:182`, `info:doi/10.1000/182` or as a URL.
    """


def handle_record(
    handle: Name,
    type: Types = [],  # noqa: A002, B006
    index: Indexes = [],  # noqa: B006
    auth: Auth = "",
    cert: Cert = "",
    lenient: Annotated[
        str, Query(description="Read the name as a resolution URL does: without label, URL, blanks.")
    ] = "",
    pretty: Annotated[str, Query(description="Indent the JSON (empty, `yes` or `true`).")] = "",
    callback: Annotated[str, Query(description="JSONP: wrap the JSON in a call of this function.")] = "",
) -> None:
    """The record of a handle as the upstream has it: the order of its values, letter case and unknown members stay.

    Aliases are data here and are not followed.
    """


def agencies(
    names: Annotated[
        str,
        Path(
            description="DOI names or prefixes, at most 100, separated by commas; a comma inside a name is `%2C`.",
            examples=["10.1000/182,10.5281"],
        ),
    ],
) -> None:
    """The registration agency of each name, in the order of the names; also at `/doiRA/{names}`.

    A name without an agency has a `status` instead: "Invalid DOI", "DOI does not exist", "Unknown" if it is
    registered but no record names the agency, or "Could not verify" if the upstream could not be queried.
    """


def openurl(
    id: Annotated[str, Query(description="A DOI as `doi:10.1000/182`.")] = "",  # noqa: A002
    rft_id: Annotated[str, Query(description="A DOI as `info:doi/10.1000/182`.")] = "",
    format: Annotated[str, Query(description="As for a name.")] = "",  # noqa: A002
) -> None:
    """Resolve the DOI that an OpenURL names (ANSI/NISO Z39.88)."""


def name_routes() -> list[APIRoute]:
    """The routes to describe."""
    return [
        _page_route("/{doi}", resolve, "Resolve a DOI name", "/10.1000/182"),
        _page_route("/openurl", openurl, "Resolve the DOI in an OpenURL", "/openurl?id=doi:10.1000/182"),
        APIRoute(
            "/api/handles/{handle}",
            handle_record,
            methods=["GET"],
            tags=["handle API"],
            summary="Read a record",
            openapi_extra={EXAMPLE: "/api/handles/10.1000/182?type=URL&pretty"},
            response_model=HandleAnswerModel,
            response_description="The record, or responseCode 200 if it has no such values.",
            responses={
                304: {"description": "The client has this answer already: If-None-Match has its ETag."},
                400: {"model": HandleAnswerModel, "description": "The index or the name is not valid."},
                404: {"model": HandleAnswerModel, "description": "responseCode 100: not registered."},
                **{status: {**answer, "model": HandleAnswerModel} for status, answer in _COULD_NOT_VERIFY.items()},
            },
        ),
        APIRoute(
            "/ra/{names}",
            agencies,
            methods=["GET"],
            tags=["agencies"],
            summary="Which agency registered it?",
            openapi_extra={EXAMPLE: "/ra/10.1000/182,10.5281"},
            response_model=list[AgencyModel],
            response_model_exclude_none=True,
            response_description="A row for each name.",
            responses={400: {"description": "The request has more names than the limit."}},
        ),
    ]


def _page_route(path: str, operation: Callable[..., None], summary: str, example: str) -> APIRoute:
    """A route that redirects or returns a page."""
    location = {"description": "The target of the name.", "schema": {"type": "string", "format": "uri"}}
    page: dict[str, Any] = {"content": {"text/html": {"schema": {"type": "string"}}}}
    answers: dict[int | str, dict[str, Any]] = {
        200: {"description": "The record as a page, because it has no target or the request has `noredirect`."},
        301: {"description": "The name is an alias. Redirects to this resolver's address of the name it stands for."},
        302: {"description": "Redirects to the target of the name; 303, 307 or 308 if the record says so."},
        400: {"description": "Not a DOI name, or an unknown `format`."},
        404: {"description": "The upstream says that the name is not registered."},
        414: {"description": "The name is too long."},
        **_COULD_NOT_VERIFY,
    }
    responses = {status: {**answer, **page} for status, answer in answers.items()}
    responses[302]["headers"] = {"Location": location}
    responses[301] = {**answers[301], "headers": {"Location": location}}
    return APIRoute(
        path,
        operation,
        methods=["GET"],
        tags=["resolution"],
        summary=summary,
        openapi_extra={EXAMPLE: example},
        status_code=302,
        response_class=HTMLResponse,
        response_description=answers[302]["description"],
        responses=responses,
    )
