"""Answers a list while it arrives: rows are sent as soon as they are known.

Reading and writing go on at the same time (RFC 9112, section 9.3, allows an answer before the end of the request). The
work ends when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from doi_proxy.endpoints.fair_lock import FairLock
from doi_proxy.errors import Quota
from doi_proxy.features.lists.batch import Batches, BatchInput, BatchOptions
from doi_proxy.features.lists.feature import TooManyBatches
from doi_proxy.features.lists.verdict import ListRow, read_input
from doi_proxy.list_formats.body import BodyBuffer, BodyFormat, ListCounter, ListLimits, decompress_body, read_list_body
from doi_proxy.list_formats.extraction import decode_text, find_names_of, write_position
from doi_proxy.list_formats.lines import ListItem
from doi_proxy.list_formats.streamed_answer import Output, StreamedAnswer
from doi_proxy.list_formats.writing import Members
from doi_proxy.rationing.shares import SharedPlaces

#: The name of the limit, in RateLimit headers and in metrics.
BATCHES: Final = "batches"
#: The Retry-After of a refusal, in seconds. Lists take from a second to hours.
_RETRY_SECONDS: Final = 10.0
_GAVE_WAY: Final = "Another client needed the place of this list; send the names without a row again."
#: Seconds of waiting for its client after which a list may give way.
IDLE_AFTER: Final = 1.0
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
        """Whether it waits for its client alone: for more than IDLE_AFTER seconds in all. See Holder."""
        return self._body.is_awaited and self._body.waited > IDLE_AFTER

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
        raise _refuse(_GAVE_WAY, 1)


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
    return TooManyBatches(message, quota=Quota(BATCHES, amount, int(_RETRY_SECONDS)), retry_after=_RETRY_SECONDS)


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

    def __init__(self, service: BatchService, request: BatchRequest) -> None:
        super().__init__()
        self.read_ahead_bytes = service.limits.read_ahead_bytes
        self._service = service
        self._request = request

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        # What a compressed list is large in is not known before its end.
        place = OpenList(body, output.abort, length=None if self._request.form.is_gzip else self._request.length)
        with self._service.open.enter(self._request.client, place):
            inputs = self._read_inputs(body)
            groups = self._service.batches.groups(inputs, self._request.options)
            async with aclosing(groups), output.open_rows(self._request.output, self._request.fields) as rows:
                async for group in place.limit(groups):
                    if not await rows.write([self._members(row) for row in group]):
                        return

    async def _read_inputs(self, body: BodyBuffer) -> AsyncIterator[BatchInput]:
        limits, form = self._service.limits, self._request.form
        hold_turn = partial(self._service.text_turns.hold, self._request.client)
        if not self._request.extracts:
            async for item in read_list_body(body.pieces(), form, limits, hold_turn):
                # A call less for almost every item.
                yield item if isinstance(item, ListItem) else read_input(item)
            return
        counter = ListCounter(limits)
        text = decode_text(decompress_body(body.pieces(), limits, is_gzip=form.is_gzip))
        async for found in find_names_of(text, hold_turn):
            counter.count_item()
            yield ListItem(found.text, found=found)

    def _members(self, row: ListRow) -> Members:
        members = row.members()
        if self._request.extracts and row.found is not None:
            members |= write_position(row.found)
        return {name: members.get(name) for name in self._request.fields}
