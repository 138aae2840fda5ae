"""`POST /api/resolve`: the verdict on each name of a list, as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query, Request, Response
from pydantic import BaseModel, Field

from app.errors import InvalidParameter
from app.features.lists.answer import BatchRequest, BatchService, RowsAnswer
from app.features.lists.body import LIST_BODY, read_body_format
from app.features.lists.name_lookup import BatchOptions
from app.features.lists.verdict import FIELDS
from app.features.lists.writing import JsonLinesWriter
from app.web.media_types import CSV, JSON, NDJSON, PROBLEM
from app.web.problem_model import SuggestionModel

RESOLVE_PATH: Final = "/api/resolve"
_SUGGESTIONS: Final = "suggestions"
_OUTPUTS: Final = {"ndjson": NDJSON, "csv": CSV, "json": JSON}
#: Media types in Accept, in the order of preference of this resolver.
_ACCEPTED: Final = {
    NDJSON: NDJSON, "application/ndjson": NDJSON, "application/jsonl": NDJSON, CSV: CSV, JSON: JSON,
}  # fmt: skip


class RowModel(BaseModel):
    """The result for one input."""

    input: str = Field(description="The input as it was sent.", examples=["https://doi.org/10.1000/182"])
    doi: str | None = Field(description="The name in the spelling of the input.", examples=["10.1000/182"])
    verdict: Literal["resolved", "alias", "no_target", "not_found", "not_a_doi", "unverified", "rate_limited"]
    url: str | None = Field(
        description="The target.", examples=["https://www.doi.org/the-identifier/resources/handbook/"]
    )
    ra: str | None = Field(description="The registration agency, null if it is not known.", examples=["Crossref"])
    age: int | None = Field(description="Seconds since the record was fetched.", examples=[0])
    stale: bool = Field(description="Whether the record is past its TTL, and the upstream could not be queried.")
    message: str | None = Field(description="The reason in words.")
    suggestions: list[SuggestionModel] = Field([], description="With `suggest=true`. They are not followed.")


def add_resolve(app: FastAPI, service: BatchService, client_at: Callable[[str], str]) -> None:
    """Add the endpoint. `client_at` returns the client at an address."""

    async def resolve_list(
        request: Request,
        output: Annotated[Literal["ndjson", "csv", "json"] | None, Query(description="The form of the answer.")] = None,
        fields: Annotated[
            str | None, Query(max_length=200, description="The members of the rows, separated by commas.")
        ] = None,
        only: Annotated[Literal["cached"] | None, Query(description="Answer from the cache alone.")] = None,
        suggest: Annotated[bool, Query(description="Suggest other names for those that lead nowhere.")] = False,
        column: Annotated[
            str | None, Query(max_length=200, description="The column or member with the names, instead of `doi`.")
        ] = None,
        encoding: Annotated[
            Literal["escaped", "literal"],
            Query(description="In `escaped` names, `%` always begins an escape. `literal` names are as they are."),
        ] = "escaped",
    ) -> Response:
        """The verdict on each name of a list, in the order of the list.

        Rows are sent while the list arrives. Each name is looked up once. The queries of people go first.
        """
        chosen = read_fields(fields, suggests=suggest)
        client = client_at(request.client.host if request.client else "")
        sources: Literal["none", "cached", "any"] = "none" if "ra" not in chosen else "any" if fields else "cached"
        options = BatchOptions(
            client=client,
            only_cached=only is not None,
            literal=encoding == "literal",
            suggests=suggest,
            agency="cached" if only and sources == "any" else sources,
        )
        headers = request.headers
        form = read_body_format(headers.get("content-type"), headers.get("content-encoding"), column)
        media_type = choose_output(output, headers.get("accept"))
        return RowsAnswer(service, BatchRequest(client, form, options, media_type, chosen))

    _add_route(app, resolve_list)


def read_fields(fields: str | None, *, suggests: bool) -> tuple[str, ...]:
    """The members of the rows, in the order of the request. Raises InvalidParameter."""
    known = (*FIELDS, _SUGGESTIONS) if suggests else FIELDS
    if fields is None:
        return known
    chosen = tuple(dict.fromkeys(name.strip() for name in fields.split(",")))
    for name in chosen:
        if name not in known:
            raise InvalidParameter(f"fields: {name[:80]!r} is not one of {', '.join(known)}.")
    return chosen


def choose_output(output: str | None, accept: str | None) -> str:
    """The media type of the answer: `output`, else the one that Accept names first, else NDJSON."""
    if output is not None:
        return _OUTPUTS[output]
    named = [entry.partition(";")[0].strip() for entry in (accept or "").lower().split(",", 20)]
    return next((_ACCEPTED[entry] for entry in named if entry in _ACCEPTED), NDJSON)


def _add_route(app: FastAPI, resolve_list: Callable[..., Any]) -> None:
    problem: dict[str, Any] = {"content": {PROBLEM: {}}}
    row = {"$ref": "#/components/schemas/RowModel"}
    app.add_api_route(
        RESOLVE_PATH,
        resolve_list,
        methods=["POST"],
        tags=["resolution"],
        summary="Resolve a list of names",
        response_model=list[RowModel],
        response_description="A row for each name, in their order.",
        responses={
            200: {"content": {JsonLinesWriter.media_type: {"schema": row}, CSV: {"schema": {"type": "string"}}}},
            400: {"description": "A parameter or the list cannot be read.", **problem},
            403: {"description": "The network of the client is denied.", **problem},
            413: {"description": "The list is too long, or too long for one JSON array.", **problem},
            415: {"description": "The list is not of one of these media types.", **problem},
            429: {"description": "The client is over its limit of requests, or of lists at a time.", **problem},
        },
        openapi_extra={"requestBody": LIST_BODY},
    )
