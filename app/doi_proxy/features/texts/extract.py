"""`POST /api/extract`: every name in a text, with its place. No upstream is queried."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query, Request, Response
from pydantic import BaseModel, Field

from doi_proxy.endpoints.fair_lock import FairLock, HoldTurn
from doi_proxy.endpoints.operators import ReadingModel, problem_responses
from doi_proxy.features.texts.feature import EXTRACT_PATH
from doi_proxy.list_formats import extraction
from doi_proxy.list_formats.body import (
    BodyBuffer,
    BodyFormat,
    ListLimits,
    decompress_body,
    read_body_format,
)
from doi_proxy.list_formats.streamed_answer import Output, StreamedAnswer, choose_output
from doi_proxy.web.media_types import CSV, JSON, NDJSON
from doi_proxy.web.request_path import client_of

_FIELDS: Final = ("doi", *extraction.POSITION_FIELDS)


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

    def __init__(self, hold_turn: HoldTurn, form: BodyFormat, output_type: str) -> None:
        super().__init__()
        self._hold_turn = hold_turn
        self._form = form
        self._output_type = output_type

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        pieces = decompress_body(body.pieces(), ListLimits(names=0), is_gzip=self._form.is_gzip)
        decode = extraction.decode_json if self._form.media_type == JSON else extraction.decode_text
        names = extraction.find_names_of(decode(pieces), self._hold_turn)
        async with output.open_rows(self._output_type, _FIELDS) as rows:
            async for found in names:
                if not await rows.write([{"doi": found.name.text, **extraction.write_position(found)}]):
                    return


def add_extract(app: FastAPI, turns: FairLock) -> None:
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
        return ExtractedAnswer(hold_turn, form, output_type)

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
