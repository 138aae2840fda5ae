"""`/api/parse`: what texts are, decided from their form alone. No upstream is queried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from app.doi.percent import decode
from app.errors import InvalidParameter, RequestTooLarge, UnsupportedBody
from app.features.lists.json_lists import explain
from app.features.parse.models import ParsedTextModel
from app.features.parse.parsing import parse, write_line
from app.web.freshness import NO_STORE, OWN_PAGE
from app.web.media_types import JSON, NDJSON, PROBLEM, TEXT, read_content_type
from app.web.request import Request as OwnRequest

PARSE_PATH: Final = "/api/parse"
#: Rows are sent in pieces of about this many bytes.
_PIECE_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """The bounds of one request."""

    names: int
    body_bytes: int


def add_parse(app: FastAPI, public_url: str | None, limits: ParseLimits) -> None:
    """Add the endpoint. `public_url` is this resolver's own URL, None for that of each request."""
    # One text at a time, whatever the number of requests: other requests wait for at most one.
    turn = asyncio.Lock()

    async def parse_one(
        request: Request,
        doi: Annotated[str, Query(description="The text, percent-encoded.", examples=["10.1000/182"])],
    ) -> Response:
        """What a text is: a DOI name, a shortDOI, a handle, a prefix or none of them. The upstream is not queried.

        The text is read as in the form of the home page: `%` always begins an escape.
        """
        row = _write_row(_read_parameter(request, doi), _base_url(request, public_url))
        return Response(row, media_type=JSON, headers=_text_header(OWN_PAGE))

    async def parse_many(request: Request) -> Response:
        """What each of many texts is, in their order.

        The body is a JSON array of strings, one JSON string a line, or one text a line. The answer is a JSON array for
        an array, and one JSON object a line for lines.
        """
        media_type = _read_media_type(request)
        try:
            texts = _READERS[media_type](await _read_body(request, limits.body_bytes))
        except ClientDisconnect:
            return Response(status_code=400)
        if len(texts) > limits.names:
            raise RequestTooLarge(f"The body has {len(texts)} texts; send at most {limits.names} in one request.")
        rows = _write_rows(texts, _base_url(request, public_url), turn)
        body, output = (_join_array(rows), JSON) if media_type == JSON else (_join_lines(rows), NDJSON)
        return StreamingResponse(body, media_type=output, headers=_text_header(NO_STORE))

    _add_routes(app, parse_one, parse_many)


def _add_routes(app: FastAPI, parse_one: Callable[..., Any], parse_many: Callable[..., Any]) -> None:
    problem: dict[str, Any] = {"content": {PROBLEM: {}}}
    limited: dict[int | str, dict[str, Any]] = {
        status: {"description": text, **problem}
        for status, text in {403: "The network of the client is denied.", 429: "The client is over its limit."}.items()
    }
    app.add_api_route(
        PARSE_PATH,
        parse_one,
        methods=["GET"],
        tags=["parsing"],
        summary="What is this text?",
        response_model=ParsedTextModel,
        response_description="What the text is; also if it is not a DOI name.",
        responses={
            400: {"description": "There is no `doi`, or it is not percent-encoded UTF-8.", **problem},
            414: {"description": "The address is too long.", **problem},
            **limited,
        },
        openapi_extra={"x-example": f"{PARSE_PATH}?doi=10.1000/182"},
    )
    app.add_api_route(PARSE_PATH, parse_one, methods=["HEAD"], include_in_schema=False)
    row = {"$ref": "#/components/schemas/ParsedTextModel"}
    app.add_api_route(
        PARSE_PATH,
        parse_many,
        methods=["POST"],
        tags=["parsing"],
        summary="What are these texts?",
        response_model=list[ParsedTextModel],
        response_description="An object for each text, in their order.",
        responses={
            200: {"content": {NDJSON: {"schema": row}}},
            400: {"description": "The body cannot be read.", **problem},
            413: {"description": "The body is too large, or has too many texts.", **problem},
            415: {"description": "The body is not of one of these media types.", **problem},
            **limited,
        },
        openapi_extra={"requestBody": _BODY},
    )


_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        JSON: {"schema": {"type": "array", "items": {"type": "string"}}, "example": ["doi:10.1000/182", "10.1000"]},
        NDJSON: {"schema": {"type": "string"}, "example": '"doi:10.1000/182"\n"10.1000"\n'},
        TEXT: {"schema": {"type": "string"}, "example": "doi:10.1000/182\n10.1000\n"},
    },
}


def _read_parameter(request: Request, doi: str) -> str:
    """The text from the raw query, where "+" is a plus sign and bytes are strictly UTF-8. Raises InvalidName."""
    for part in request.scope["query_string"].split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"doi":
            return decode(value)
    return doi


def _base_url(request: Request, public_url: str | None) -> str:
    return OwnRequest(request.scope, request.receive, public_url=public_url, sub_path=b"").base_url


def _read_media_type(request: Request) -> str:
    media_type = read_content_type(request.headers.get("content-type"), _READERS)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedBody("The body must not be compressed: send it without Content-Encoding.")
    return media_type


async def _read_body(request: Request, most: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise RequestTooLarge(f"The request's body is larger than {most} bytes; send several requests.")
    return bytes(body)


def _read_array(body: bytes) -> list[str]:
    try:
        return msgspec.json.decode(body, type=list[str])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidParameter(f"The body is not a JSON array of strings: {explain(body, error)}.") from error


def _read_ndjson(body: bytes) -> list[str]:
    return [_read_string(line, number) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]


def _read_string(line: bytes, number: int) -> str:
    try:
        return msgspec.json.decode(line, type=str)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidParameter(f"Line {number} is not a JSON string: {explain(line, error)}.") from error


def _read_lines(body: bytes) -> list[str]:
    """One text a line. A line that is empty is a text too, so the answer has as many lines."""
    lines = body.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n") if body else []
    return [_read_line(line.removesuffix(b"\r"), number) for number, line in enumerate(lines, 1)]


def _read_line(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"Line {number} is not UTF-8, from byte {error.start + 1}.") from error


_READERS: Final[dict[str, Callable[[bytes], list[str]]]] = {
    JSON: _read_array,
    NDJSON: _read_ndjson,
    TEXT: _read_lines,
}


def _write_row(text: str, base_url: str) -> bytes:
    own_hosts = frozenset({urlsplit(base_url).hostname or ""})
    return write_line(parse(text, own_hosts=own_hosts), base_url)


async def _write_rows(texts: list[str], base_url: str, turn: asyncio.Lock) -> AsyncIterator[bytes]:
    for text in texts:
        async with turn:
            row = _write_row(text, base_url)
            await asyncio.sleep(0)
        yield row


async def _join_lines(rows: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    piece = bytearray()
    async for row in rows:
        piece += row + b"\n"
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


async def _join_array(rows: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    piece, separator = bytearray(b"["), b""
    async for row in rows:
        piece += separator + row
        separator = b","
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + b"]"


def _text_header(header: tuple[bytes, bytes]) -> dict[str, str]:
    return {header[0].decode(): header[1].decode()}
