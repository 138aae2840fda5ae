"""`/api/parse`: what texts are, and `/api/extract`: the names in a text. Both are decided from the form alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, urlsplit

from fastapi import FastAPI, Query, Request, Response
from pydantic import BaseModel, Field

from doi_names.derived import Kind, ParsedText, choose_reading, parse, unreadable
from doi_names.presentation import MAX_TYPED_CHARACTERS, decode
from doi_proxy.endpoints import ReadingModel, SuggestionModel, problem_responses
from doi_proxy.errors import RequestTooLarge
from doi_proxy.features.texts.command import parse_item, to_object, write_line
from doi_proxy.features.texts.feature import EXTRACT_PATH, PARSE_PATH
from doi_proxy.list_formats import extraction
from doi_proxy.list_formats.body import (
    LIST_BODY,
    BodyBuffer,
    BodyFormat,
    ListLimits,
    decompress_body,
    read_body_format,
    read_list_body,
)
from doi_proxy.list_formats.entries import MAX_EXCERPT
from doi_proxy.list_formats.fair_lock import FairLock, HoldTurn
from doi_proxy.list_formats.lines import MAX_LINE_BYTES
from doi_proxy.list_formats.streamed_answer import Charge, Output, StreamedAnswer, choose_output
from doi_proxy.web.freshness import OWN_PAGE
from doi_proxy.web.media_types import CSV, JSON, NDJSON
from doi_proxy.web.request import Request as OwnRequest
from doi_proxy.web.request_path import client_of

_TEXT_IN_JSON: Final = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string", "description": "The text, at most 1 MiB with its JSON."}},
}


class FoundNameModel(ReadingModel):
    """A name in a text."""

    text: str = Field(description="The part of the text that the name comes from.", examples=["10.1000/182"])
    start: int = Field(description="The characters of the text before it.", examples=[5])
    end: int = Field(description="The characters of the text until its end.", examples=[16])


class ExtractQuery(BaseModel):
    """The parameters of a request."""

    output: Literal["ndjson", "csv", "json"] | None = Field(None, description="The form of the answer.")


class ExtractedAnswer(StreamedAnswer):
    """The names of one text, each as soon as it is found."""

    def __init__(self, hold_turn: HoldTurn, form: BodyFormat, output_type: str, charge: Charge) -> None:
        super().__init__(charge)
        self._hold_turn = hold_turn
        self._form = form
        self._output_type = output_type

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        pieces = output.count(decompress_body(body.pieces(), is_gzip=self._form.is_gzip))
        decode = extraction.decode_json if self._form.media_type == JSON else extraction.decode_text
        names = extraction.find_names_of(decode(pieces), self._hold_turn)
        async with output.open_rows(self._output_type, ("doi", *extraction.POSITION_FIELDS)) as rows:
            async for found in names:
                if not await rows.write([{"doi": found.name.text, **extraction.write_position(found)}]):
                    return


def add_extract(app: FastAPI, turns: FairLock, charge: Charge) -> None:
    """Add the endpoint. `turns` is the lock of all texts."""

    async def extract_names(request: Request, query: Annotated[ExtractQuery, Query()]) -> Response:
        """Every name in a text, in its order. Rows are sent while the text arrives, which can have any length.

        The `text` of a JSON object is read when the object is complete. Names that a line break cuts are joined, and
        errors are undone. Whether a name exists is not known.
        """
        headers = request.headers
        form = read_body_format(
            headers.get("content-type"), headers.get("content-encoding"), supported=(JSON, *extraction.TEXT_TYPES)
        )
        output_type = choose_output(query.output, headers.get("accept"), form.media_type)
        hold_turn = partial(turns.hold, client_of(request.client.host if request.client else ""))
        return ExtractedAnswer(hold_turn, form, output_type, charge)

    row = {"$ref": "#/components/schemas/FoundNameModel"}
    text = {"schema": {"type": "string"}, "example": "See https://doi.org/10.1000/182."}
    # Some client generators use only the first media type.
    body: dict[str, Any] = {
        JSON: {"schema": _TEXT_IN_JSON, "example": {"text": text["example"]}},
        **dict.fromkeys(extraction.TEXT_TYPES, text),
    }
    app.add_api_route(
        EXTRACT_PATH,
        extract_names,
        methods=["POST"],
        tags=["Read"],
        summary="Which names are in this text?",
        response_model=list[FoundNameModel],
        response_description="An object for each name, in the order of the text.",
        responses={
            200: {"content": {NDJSON: {"schema": row}, CSV: {"schema": {"type": "string"}}}},
            **problem_responses(
                {
                    400: "The body cannot be read.",
                    403: "The network of the client is denied.",
                    413: "The JSON is too large.",
                    415: "The body is not of one of these media types.",
                    429: "The client is over its limit.",
                }
            ),
        },
        openapi_extra={"requestBody": {"required": True, "content": body}},
    )


class WarningModel(BaseModel):
    """A part of a name that is allowed, and is likely a mistake."""

    code: str = Field(description="A stable token.", examples=["look-alike"])
    message: str = Field(description="A sentence with the position in the name, counted from 1.")


class ParsedTextModel(BaseModel):
    """What a text is."""

    input: str = Field(description="The text as it was sent.", examples=["https://doi.org/10.1000/182"])
    kind: Kind
    doi: str | None = Field(
        description="The DOI name or shortDOI; null if the text is neither.", examples=["10.1000/182"]
    )
    uri: str | None = Field(description="The `doi:` URI of a DOI name.", examples=["doi:10.1000/182"])
    url: str | None = Field(
        description="Its address here; null if the URL of this resolver is not known.",
        examples=["http://127.0.0.1:8000/10.1000/182"],
    )
    doi_org_url: str | None = Field(
        description="Its address at doi.org: the form to print in a reference.",
        examples=["https://doi.org/10.1000/182"],
    )
    prefix: str | None = Field(examples=["10.1000"])
    suffix: str | None = Field(examples=["182"])
    rules: list[str] = Field(description="What was undone to read the name, in this order.", examples=[["url"]])
    warnings: list[WarningModel]
    best: ReadingModel | None = Field(
        None, description="The likeliest reading: sure and likely repairs come before the text as it stands."
    )
    suggestions: list[SuggestionModel] = Field(description="The likeliest first. They are not looked up.")
    message: str | None = Field(description="Why it is not a DOI name, with the position; null if it is one.")


class ParsedItemModel(ParsedTextModel):
    """What an item of a list is."""

    line: int | None = Field(None, description="Of BibTeX and RIS: the line of the entry.")
    key: str | None = Field(None, description="The citation key of BibTeX, or the number of a RIS reference.")


class ParsedAnswer(StreamedAnswer):
    """What each text of a list is, as soon as it is read."""

    def __init__(self, hold_turn: HoldTurn, form: BodyFormat, base_url: str, charge: Charge) -> None:
        super().__init__(charge)
        self._hold_turn = hold_turn
        self._form = form
        self._base_url = base_url

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        limits = ListLimits(names=10_000, total_bytes=1024 * 1024)
        hosts = frozenset({urlsplit(self._base_url).hostname or ""})
        items = read_list_body(body.pieces(), self._form, limits, self._hold_turn)
        async with output.open_rows(JSON if self._form.media_type == JSON else NDJSON, ()) as rows:
            async for item in items:
                is_long = len(item.text) > MAX_TYPED_CHARACTERS
                async with self._hold_turn():
                    parsed = (
                        unreadable(item.text[:MAX_EXCERPT], _explain_length(item.text))
                        if is_long
                        else parse_item(item, hosts)
                    )
                    row = to_object(parsed, self._base_url)
                    await asyncio.sleep(0)
                entry = {} if item.key is None else {"line": item.line, "key": item.key}
                if not await rows.write([row | entry]):
                    return


def add_parse(app: FastAPI, public_url: str | None, turns: FairLock, charge: Charge) -> None:
    """Add the endpoint. `turns` is the lock of all texts.

    `public_url` is this resolver's own URL. If it is None, each request says it.
    """

    async def parse_one(
        request: Request,
        doi: Annotated[str, Query(description="The text, percent-encoded.", examples=["10.1000/182"])],
    ) -> Response:
        """What a text is: a DOI name, a shortDOI, a handle, a prefix or none of them. The upstream is not queried.

        The text is read as in the form of the home page: `%` always begins an escape. `+` is a blank, unless it is part
        of one whole name.
        """
        raw = _read_parameter(request, doi)
        text, base_url = decode(raw), _base_url(request, public_url)
        if len(text) > MAX_TYPED_CHARACTERS:
            raise RequestTooLarge(_explain_length(text))
        parsed = _parse(text, base_url)
        if b"+" in raw and b"%20" not in raw:
            await asyncio.sleep(0)  # a text takes up to 8 ms
            blanks = _parse(decode(raw.replace(b"+", b" ")), base_url)
            parsed = choose_reading(blanks, parsed, is_form=b"%2f" in raw.lower())
        row = write_line(parsed, base_url)
        name, value = OWN_PAGE
        return Response(row, media_type=JSON, headers={name.decode(): value.decode()})

    async def parse_many(
        request: Request,
        column: Annotated[
            str | None, Query(max_length=200, description="The column or member with the texts, instead of `doi`.")
        ] = None,
    ) -> Response:
        """What each of many texts is, in their order.

        The body is read as `/api/resolve` reads it, and rows are sent while it arrives. The answer is a JSON array for
        an array, and one JSON object a line for other lists. An error after the first row is the last row.
        """
        headers = request.headers
        form = read_body_format(headers.get("content-type"), headers.get("content-encoding"), (column, None))
        hold_turn = partial(turns.hold, client_of(request.client.host if request.client else ""))
        return ParsedAnswer(hold_turn, form, _base_url(request, public_url), charge)

    _add_routes(app, parse_one, parse_many)


def _add_routes(app: FastAPI, parse_one: Callable[..., Any], parse_many: Callable[..., Any]) -> None:
    limited = {403: "The network of the client is denied.", 429: "The client is over its limit."}
    app.add_api_route(
        PARSE_PATH,
        parse_one,
        methods=["GET"],
        tags=["Read"],
        summary="What is this text?",
        response_model=ParsedTextModel,
        response_description="What the text is; also if it is not a DOI name.",
        responses=problem_responses(
            {
                400: "The parameter `doi` is missing, or is not percent-encoded UTF-8.",
                413: "The text is too long.",
                414: "The address is too long.",
                **limited,
            }
        ),
        openapi_extra={"x-example": f"{PARSE_PATH}?doi=10.1000/182"},
    )
    app.add_api_route(PARSE_PATH, parse_one, methods=["HEAD"], include_in_schema=False)
    row = {"$ref": "#/components/schemas/ParsedItemModel"}
    app.add_api_route(
        PARSE_PATH,
        parse_many,
        methods=["POST"],
        tags=["Read"],
        summary="What are these texts?",
        response_model=list[ParsedItemModel],
        response_description="An object for each text, in their order.",
        responses={
            200: {"content": {NDJSON: {"schema": row}}},
            **problem_responses(
                {
                    400: "The body cannot be read.",
                    413: "The body is too large, or has too many texts.",
                    415: "The body is not of one of these media types.",
                    **limited,
                }
            ),
        },
        openapi_extra={"requestBody": LIST_BODY},
    )


def _read_parameter(request: Request, doi: str) -> bytes:
    """The text as it stands in the raw query. Its bytes are strictly UTF-8."""
    for part in request.scope["query_string"].split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"doi":
            return bytes(value)
    return quote(doi, safe="").encode()


def _explain_length(text: str) -> str:
    # A text is parsed in one turn of the event loop.
    return (
        f"The text has {len(text)} characters; the limit is {MAX_TYPED_CHARACTERS}. POST /api/resolve reads lists with "
        f"lines of up to {MAX_LINE_BYTES} bytes."
    )


def _base_url(request: Request, public_url: str | None) -> str:
    return OwnRequest(request.scope, request.receive, public_url=public_url, sub_path=b"").base_url


def _parse(text: str, base_url: str) -> ParsedText:
    return parse(text, own_hosts=frozenset({urlsplit(base_url).hostname or ""}))
