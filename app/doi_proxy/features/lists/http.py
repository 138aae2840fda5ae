"""`POST /api/resolve`: the verdict on each name of a list, as a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from pydantic import BaseModel, Field, ValidationError, field_validator

from doi_names.repair.exploration import Confidence
from doi_proxy.endpoints.operators import ReadingModel, SuggestionModel, problem_responses
from doi_proxy.errors import InvalidParameter
from doi_proxy.features.lists.answer import BatchRequest, BatchService, RowsAnswer
from doi_proxy.features.lists.batch import BatchOptions, agency_source
from doi_proxy.features.lists.feature import RESOLVE_PATH
from doi_proxy.features.lists.verdict import Match, read_fields
from doi_proxy.list_formats.body import LIST_BODY, LIST_TYPES, BodyFormat, read_body_format
from doi_proxy.list_formats.extraction import TEXT_TYPES
from doi_proxy.list_formats.streamed_answer import choose_output
from doi_proxy.list_formats.writing import JsonLinesWriter
from doi_proxy.web.media_types import CSV, TEXT
from doi_proxy.web.request_path import client_of


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
    line: int | None = Field(None, description="The line of the list; of a JSON array, the number of the item.")
    key: str | None = Field(None, description="The citation key of BibTeX, or the number of a RIS reference.")
    reason: Literal["no-doi"] | None = Field(None, description="`no-doi`: nothing in the input looks like a DOI.")
    suggestions: list[SuggestionModel] = Field([], description="With `suggest=true`. They are not followed.")
    best: ReadingModel | None = Field(None, description="With `suggest=true`: the likeliest name.")
    match: Match | None = Field(
        None, description="With `match=true`: whether the reference is about the work that its DOI leads to."
    )
    title: str | None = Field(None, description="With `match=true`: the title of that work, if it is known.")
    echo: str | int | float | bool | None = Field(None, description="With `echo`: that member of the item.")
    text: str | None = Field(None, description="With `extract=true`: the part of the text with the name.")
    start: int | None = Field(None, description="With `extract=true`: the characters of the text before it.")
    end: int | None = Field(None, description="With `extract=true`: the characters of the text until its end.")
    confidence: Confidence | None = Field(None, description="With `extract=true`: how certain the reading is.")
    rule: str | None = Field(None, description="With `extract=true`: the first repair.")


class ResolveQuery(BaseModel):
    """The parameters of a request."""

    output: Literal["ndjson", "csv", "json"] | None = Field(None, description="The form of the answer.")
    fields: str | None = Field(None, max_length=200, description="The members of the rows, separated by commas.")
    only: Literal["cached"] | None = Field(None, description="Answer from the cache alone.")
    extract: bool = Field(False, description="The body is running text: look up every name in it.")
    suggest: bool | Literal["checked"] = Field(
        False, description="Suggest other names for those that lead nowhere; `checked` ones are looked up."
    )
    match: bool = Field(
        False,
        description="Compare title, author and year of each reference with the work: in BibTeX and RIS, and in columns "
        "or members with these names.",
    )
    column: str | None = Field(
        None, max_length=200, description="The column or member with the names, instead of `doi`."
    )
    echo: str | None = Field(
        None, max_length=200, description="A column or member of each item that its row repeats, such as an identifier."
    )
    encoding: Literal["escaped", "literal"] = Field(
        "escaped", description="In `escaped` names, `%` always begins an escape. `literal` names are as they are."
    )

    @field_validator("suggest", mode="wrap")
    @classmethod
    def _name_choices(cls, value: object, read: Callable[[object], bool | str]) -> bool | str:
        # The errors of a union name its types.
        try:
            return read(value)
        except ValidationError as error:
            raise ValueError("write true, false or checked") from error


def add_resolve(app: FastAPI, service: BatchService) -> None:
    """Add the endpoint."""

    async def resolve_list(request: Request, query: Annotated[ResolveQuery, Query()]) -> Response:
        """The verdict on each name of a list, in the order of the list.

        Rows are sent while the list arrives. Each name is looked up once. The queries of people go first.
        """
        fields = read_fields(
            query.fields,
            suggests=bool(query.suggest),
            extracts=query.extract,
            echoes=query.echo is not None,
            matches=query.match,
        )
        only_cached = query.only is not None
        client = client_of(request.client.host if request.client else "")
        options = BatchOptions(
            client=client,
            only_cached=only_cached,
            literal=query.encoding == "literal",
            suggests=bool(query.suggest),
            checks=query.suggest == "checked",
            matches=query.match,
            agency=agency_source(fields, is_named=query.fields is not None, only_cached=only_cached),
        )
        headers = request.headers
        body = headers.get("content-type"), headers.get("content-encoding")
        form = read_body_format(*body, (query.column, query.echo), TEXT_TYPES if query.extract else LIST_TYPES)
        if query.match:
            form = _keep_entries(form, query, has_metadata=service.batches.compare is not None)
        media_type = choose_output(query.output, headers.get("accept"), form.media_type)
        length = read_length(headers)
        return RowsAnswer(service, BatchRequest(client, form, options, media_type, fields, query.extract, length))

    _add_route(app, resolve_list)


def read_length(headers: Mapping[str, str]) -> int | None:
    """The Content-Length of a request; None without one, and where it is wrong."""
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _keep_entries(form: BodyFormat, query: ResolveQuery, *, has_metadata: bool) -> BodyFormat:
    """The format of a list whose references are compared. Raises InvalidParameter."""
    if not has_metadata:
        raise InvalidParameter("match: this resolver fetches no metadata; its operator can set `metadata` to `on`.")
    if query.extract or form.media_type == TEXT:
        raise InvalidParameter("match: a text has no titles to compare; send BibTeX, RIS, CSV or JSON.")
    return replace(form, keeps_entries=True)


def _add_route(app: FastAPI, resolve_list: Callable[..., Any]) -> None:
    row = {"$ref": "#/components/schemas/RowModel"}
    app.add_api_route(
        RESOLVE_PATH,
        resolve_list,
        methods=["POST"],
        tags=["Check"],
        summary="Resolve a list of names",
        response_model=list[RowModel],
        response_description="A row for each name, in their order.",
        responses={
            200: {"content": {JsonLinesWriter.media_type: {"schema": row}, CSV: {"schema": {"type": "string"}}}},
            **problem_responses(
                {
                    400: "A parameter or the list cannot be read.",
                    403: "The network of the client is denied.",
                    413: "The list is too long.",
                    415: "The list is not of one of these media types.",
                    429: "The client is over its limit of requests, or of lists at a time.",
                }
            ),
        },
        openapi_extra={"requestBody": LIST_BODY},
    )
