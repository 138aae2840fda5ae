"""`/api/resolve`: answers a list while it arrives. Rows are sent as soon as they are known.

Reading and writing go on at the same time (RFC 9112, section 9.3, allows an answer before the end of the request). The
work ends when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query, Request, Response
from pydantic import BaseModel, Field, ValidationError, field_validator

from doi_names.repair.exploration import Confidence
from doi_proxy.endpoints import ReadingModel, SuggestionModel, problem_responses
from doi_proxy.errors import InvalidParameter, Quota
from doi_proxy.features.lists.batch import Batches, BatchInput, BatchOptions, agency_source
from doi_proxy.features.lists.feature import RESOLVE_PATH, TooManyBatches
from doi_proxy.features.lists.verdict import ListRow, read_fields, read_input
from doi_proxy.features.metadata.match import Match
from doi_proxy.list_formats.body import (
    LIST_BODY,
    LIST_TYPES,
    BodyBuffer,
    BodyFormat,
    ListLimits,
    decompress_body,
    read_body_format,
    read_list_body,
    require_few,
)
from doi_proxy.list_formats.entries import ListItem
from doi_proxy.list_formats.extraction import TEXT_TYPES, decode_text, find_names_of, write_position
from doi_proxy.list_formats.fair_lock import FairLock
from doi_proxy.list_formats.streamed_answer import Charge, Output, StreamedAnswer, choose_output
from doi_proxy.list_formats.writing import JsonLinesWriter, Members
from doi_proxy.rationing import SharedPlaces
from doi_proxy.web.media_types import CSV
from doi_proxy.web.request_path import client_of

#: The name of the limit, in RateLimit headers and in metrics.
BATCHES: Final = "batches"
#: A list of at most so many bytes is short: 100 names have fewer.
SHORT_BYTES: Final = 8_192
#: Places of short lists for each place of others. A short list needs little memory.
SHORT_PLACES: Final = 2
#: Seconds after which a list may give way to a client with fewer lists if all places are taken. A short one does after
#: fewer seconds, if it has less than a row for each: others end soon, and in a crowd none would end if they gave way.
FAIR_SECONDS: Final = 60.0
FAIR_SHORT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What a client wants to know, and in which form."""

    client: str
    form: BodyFormat
    options: BatchOptions
    #: The media type of the answer.
    output: str
    #: The members of each row.
    fields: tuple[str, ...]
    #: Whether the body is running text.
    extracts: bool = False
    #: The Content-Length of the list.
    length: int | None = None


class OpenList:
    """The place of a list that is being answered. `abort` ends its connection. `length` is in bytes, if it is known."""

    def __init__(
        self, body: BodyBuffer, abort: Callable[[], None] = lambda: None, *, length: int | None = None
    ) -> None:
        self.is_short = length is not None and length <= SHORT_BYTES
        self._body = body
        self._abort = abort
        self._rows = 0
        self._gave_way = self._is_sending = False
        self._timeout: asyncio.Timeout | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it waits for its client alone: for more than a second in all. See Holder."""
        return self._body.is_awaited and self._body.waited > 1.0

    @property
    def is_overdue(self) -> bool:
        """See Holder. The client of a list that ends so sends the rest again, and gets a place in turn."""
        age = self._body.age
        return age > max(FAIR_SHORT_SECONDS, self._rows) if self.is_short else age > FAIR_SECONDS

    def speed(self) -> float:
        """Bytes of input a second. Only the time in which this service waited for the input counts."""
        return self._body.speed

    def give_way(self) -> None:
        """See Holder. A client that does not read would keep the list, without a place, for WRITE_TIMEOUT seconds."""
        self._gave_way = True
        if self._is_sending:
            self._abort()
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def limit(self, groups: AsyncGenerator[list[ListRow]]) -> AsyncGenerator[list[ListRow]]:
        """The groups, until the list gives way. Raises TooManyBatches then."""
        while not self._gave_way:
            try:
                async with asyncio.timeout(None) as self._timeout:
                    group = await anext(groups, None)
            except TimeoutError:
                break
            finally:
                self._timeout = None
            if group is None:
                return
            self._rows += len(group)
            self._is_sending = True
            yield group
            self._is_sending = False
        raise _refuse("Another client needed the place of this list; send the names without a row again.", 1)


class OpenBatches:
    """The places of the lists that are being answered. A client alone may have all of them.

    Short lists have places of their own, so long ones never keep them out.
    """

    def __init__(self, most: int, count_refusal: Callable[[str], None]) -> None:
        """`count_refusal` is called with the name of the limit."""
        # An eviction must leave the newcomer the smaller share: a list under way is worth more than one that begins.
        self._places = SharedPlaces[OpenList](most, least_lead=2)
        self._short = SharedPlaces[OpenList](SHORT_PLACES * most, least_lead=2)
        self._count_refusal = count_refusal

    def __len__(self) -> int:
        return len(self._places) + len(self._short)

    @contextmanager
    def enter(self, client: str, place: OpenList) -> Iterator[None]:
        """Hold a place for a client. Raises TooManyBatches."""
        places = self._short if place.is_short else self._places
        if not places.enter(client, place):
            self._count_refusal(BATCHES)
            most = places.most
            raise _refuse(f"This resolver is answering {most} lists; wait for one of them, or try again later.", most)
        try:
            yield
        finally:
            places.leave(place)


def _refuse(message: str, amount: int) -> TooManyBatches:
    # The Retry-After of a refusal, in seconds. Lists take from a second to hours.
    return TooManyBatches(message, quota=Quota(BATCHES, amount, 10), retry_after=10.0)


@dataclass(frozen=True, slots=True)
class BatchService:
    """What all lists share."""

    batches: Batches
    open: OpenBatches
    limits: ListLimits
    #: Of all texts: see find_names_of.
    text_turns: FairLock


class RowsAnswer(StreamedAnswer):
    """The answer to one list."""

    def __init__(self, service: BatchService, request: BatchRequest, charge: Charge) -> None:
        super().__init__(charge)
        self.read_ahead_bytes = service.limits.read_ahead_bytes
        self._service = service
        self._request = request

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        # What a compressed list is large in is not known before its end.
        place = OpenList(body, output.abort, length=None if self._request.form.is_gzip else self._request.length)
        with self._service.open.enter(self._request.client, place):
            inputs = self._read_inputs(body, output)
            groups = self._service.batches.groups(inputs, self._request.options)
            async with aclosing(groups), output.open_rows(self._request.output, self._request.fields) as rows:
                async for group in place.limit(groups):
                    if not await rows.write([self._members(row) for row in group]):
                        return

    async def _read_inputs(self, body: BodyBuffer, output: Output) -> AsyncIterator[BatchInput]:
        limits, form = self._service.limits, self._request.form
        hold_turn = partial(self._service.text_turns.hold, self._request.client)
        if not self._request.extracts:
            async for item in read_list_body(body.pieces(), form, limits, hold_turn):
                # A call less for almost every item.
                yield item if isinstance(item, ListItem) else read_input(item)
            return
        names = 0
        text = decode_text(output.count(decompress_body(body.pieces(), is_gzip=form.is_gzip)))
        async for found in find_names_of(text, hold_turn):
            names += 1
            require_few(names, limits)
            yield ListItem(found.text, found=found)

    def _members(self, row: ListRow) -> Members:
        members = row.members()
        if self._request.extracts and row.found is not None:
            members |= write_position(row.found)
        return {name: members.get(name) for name in self._request.fields}


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
        None,
        description="With `match=true`: whether the reference is about the work that its DOI leads to. `related`: "
        "about its edition, preprint, chapter or erratum. `doubtful`: something reads otherwise, and no more is known.",
    )
    title: str | None = Field(None, description="With `match=true`: the title of that work, if it is known.")
    why: str | None = Field(None, description="With `match=true`: what differs, or why nothing was compared.")
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
        description="Compare each reference with the work: authors, title, container, volume, issue, page and year. A "
        "text has one reference in each paragraph.",
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


def add_resolve(app: FastAPI, service: BatchService, charge: Charge) -> None:
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
            if query.extract:
                raise InvalidParameter("match: leave out `extract`; the references of a text are its paragraphs.")
            form = replace(form, keeps_entries=True)
        media_type = choose_output(query.output, headers.get("accept"), form.media_type)
        length = read_length(headers)
        request_of_list = BatchRequest(client, form, options, media_type, fields, query.extract, length)
        return RowsAnswer(service, request_of_list, charge)

    _add_route(app, resolve_list)


def read_length(headers: Mapping[str, str]) -> int | None:
    """The Content-Length of a request; None without one, and where it is wrong."""
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


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
