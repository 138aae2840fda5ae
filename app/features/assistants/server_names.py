"""Looks names up for the tools at a running proxy, by its `POST /api/resolve`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Final

import httpx
import msgspec

from app.errors import DoiProxyError
from app.features.assistants.names import Rows
from app.features.lists.batch import BatchInput
from app.features.lists.verdict import Row, read_row

_PATH: Final = "/api/resolve?output=ndjson&encoding=literal&suggest=true"
#: With these members the agency is looked up too.
_ALL_MEMBERS: Final = "&fields=input,doi,verdict,url,ra,age,stale,message,suggestions"
#: The longest row and the longest message of an error, in bytes.
_MAX_ROW_BYTES: Final = 256 * 1024
_MAX_MESSAGE: Final = 500


class ServerNames:
    """Looks names up at a proxy. `server` is its URL without a slash at the end."""

    def __init__(self, client: httpx.AsyncClient, server: str) -> None:
        self._client = client
        self._server = server

    def look_up(self, name: BatchInput) -> Rows:
        """See Names. The proxy treats the name as a list of one."""
        return aclosing(self._rows([name], _PATH + _ALL_MEMBERS))

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """See Names."""
        return aclosing(self._rows(names, _PATH))

    async def _rows(self, names: Sequence[BatchInput], path: str) -> AsyncGenerator[Row]:
        unknown = [name for name in names if isinstance(name, str)]
        async with aclosing(self._fetch(unknown, path)) as answers:
            for name in names:
                yield name if isinstance(name, Row) else await self._next(answers)

    async def _next(self, answers: AsyncIterator[Row]) -> Row:
        try:
            return await anext(answers)
        except StopAsyncIteration:
            raise DoiProxyError(f"{self._server}: the answer has too few rows; try again") from None

    async def _fetch(self, names: Sequence[str], path: str) -> AsyncGenerator[Row]:
        if not names:
            return
        content = msgspec.json.encode(names)
        headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson, application/problem+json"}
        try:
            async with self._client.stream("POST", self._server + path, content=content, headers=headers) as answer:
                if answer.status_code != HTTPStatus.OK:
                    raise self._read_problem(answer.status_code, await _read_start(answer))
                async with aclosing(_split_lines(answer)) as lines:
                    async for line in lines:
                        yield self._read_row(line)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise DoiProxyError(
                f"{self._server}: no answer: {reason}; check the URL and that the proxy runs"
            ) from error

    def _read_problem(self, status: int, body: bytes) -> DoiProxyError:
        """The error of an answer with problem details (RFC 9457, section 3.1)."""
        try:
            detail = str(msgspec.json.decode(body)["detail"])[:_MAX_MESSAGE]
        except (msgspec.DecodeError, ValueError, TypeError, KeyError):
            detail = f"status {status}; this is not a doi-proxy with /api/resolve, or it failed"
        return DoiProxyError(f"{self._server}: {detail}")

    def _read_row(self, line: bytes) -> Row:
        try:
            members = msgspec.json.decode(line)
            if "error" in members:
                # The list ended early (docs/batch.md, Errors).
                raise DoiProxyError(f"{self._server}: {str(members['error']['detail'])[:_MAX_MESSAGE]}")
            return read_row(members)
        except (ValueError, TypeError, KeyError) as error:
            shown = line[:200].decode("utf-8", "replace")
            raise DoiProxyError(f"{self._server}: this is not the row of a name: {shown}") from error


@asynccontextmanager
async def open_server_names(server: str, timeout: float) -> AsyncIterator[ServerNames]:
    """Open the names of a proxy. `timeout` is the time between two pieces of an answer, in seconds."""
    async with httpx.AsyncClient(timeout=timeout, follow_redirects=False) as client:
        yield ServerNames(client, server.rstrip("/"))


async def _read_start(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > _MAX_ROW_BYTES:
            break
    return bytes(body)


async def _split_lines(answer: httpx.Response) -> AsyncGenerator[bytes]:
    line = bytearray()
    async for piece in answer.aiter_bytes():
        *ended, rest = piece.split(b"\n")
        for part in ended:
            yield bytes(line + part)
            line.clear()
        line += rest
        if len(line) > _MAX_ROW_BYTES:
            raise httpx.DecodingError(f"a row has more than {_MAX_ROW_BYTES} bytes")
    if line:
        yield bytes(line)
