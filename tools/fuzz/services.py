"""Targets that drive whole parts: the admin API, the tools for assistants, the ways to an answer.

Each part is started once, in one event loop for all inputs of a process, on a clock that stands still.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from functools import cache
from typing import Any, Final, TypeVar

from doi_proxy.errors import InvalidParameter, InvalidRequest
from doi_proxy.features.assistants.tools import ToolName, Tools
from tests.features.assistants.test_tools import running as running_tools
from tests.server.ways import FullPathProtocol, Server, Ways
from tests.web.proxy import Proxy

_T = TypeVar("_T")
_TOKEN: Final = "correct-horse-battery-staple"
_MAX_HEADERS: Final = 8
#: How often `Ways` sends each request.
_ROUNDS: Final = 3
_JSON: Final = {"content_type": "application/json"}


_ends: Final = ExitStack()


@atexit.register
def end_services() -> None:
    """Stop what the targets have started. The next input starts it anew."""
    _ends.close()
    for start in (_runner, _admin, _tools, _same):
        start.cache_clear()


@cache
def _runner() -> asyncio.Runner:
    return _ends.enter_context(asyncio.Runner())


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    logging.disable(logging.CRITICAL)
    try:
        return _runner().run(work)
    finally:
        logging.disable(logging.NOTSET)


def _open(part: AbstractAsyncContextManager[_T]) -> _T:
    """Start a part, which `end_services` stops in the task that started it."""
    ended = asyncio.Event()

    async def hold(started: asyncio.Future[_T]) -> None:
        async with part as one:
            started.set_result(one)
            await ended.wait()

    async def start() -> tuple[_T, asyncio.Task[None]]:
        started: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(hold(started))
        await asyncio.wait((started, task), return_when=asyncio.FIRST_COMPLETED)
        return await started, task

    async def stop() -> None:
        ended.set()
        await task

    one, task = _run(start())
    _ends.callback(lambda: _run(stop()))
    return one


# --- The admin API ------------------------------------------------------------------------------------------------

_ACTIONS: Final = ("purge", "refresh", "deny", "reload")
_SHOWN: Final = ("entries/", "explain?", "changes?cursor=", "settings?")


@cache
def _admin() -> Proxy:
    proxy = _open(Proxy(admin_token=_TOKEN, cache_memory_bytes=1_000_000))
    for name in ("10.1000/182", "10.1000/ä"):
        proxy.upstream.put(name, url="http://www.doi.org/hb.html")
    return proxy


def admin(data: bytes) -> None:
    """The admin API answers any body and any path, and never as if it had failed. The first byte chooses the action."""
    if not data:
        return
    proxy, rest = _admin(), data[1:]
    number = data[0] % (len(_ACTIONS) + len(_SHOWN))
    bearer = {"authorization": f"Bearer {_TOKEN}", "client": "192.0.2.7"}
    if number < len(_ACTIONS):
        reply = _run(proxy.post(f"/admin/{_ACTIONS[number]}", rest, **bearer, **_JSON))
    elif _is_target(rest):
        reply = _run(proxy.get(f"/admin/{_SHOWN[number - len(_ACTIONS)]}".encode() + rest, **bearer))
    else:
        return
    assert reply.status < 500, reply
    if reply.status == 403 and b'"network"' in rest:
        return  # the operator denied their own network, which a later input ends
    assert reply.status != 401, reply


def _is_target(text: bytes) -> bool:
    """Whether a server passes these bytes on as a part of a target."""
    return all(0x20 < byte < 0x7F and byte != 0x23 for byte in text)


# --- The tools for assistants -------------------------------------------------------------------------------------

_CALLS: Final[tuple[tuple[ToolName, str], ...]] = (("parse", "texts"), ("resolve", "name"), ("check_list", "lines"))


@asynccontextmanager
async def _opened_tools() -> AsyncIterator[Tools]:
    async with running_tools() as desk:
        desk.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        yield desk.tools


@cache
def _tools() -> Tools:
    return _open(_opened_tools())


def tools(data: bytes) -> None:
    """The tools return a result, or refuse their arguments. The first byte chooses the tool."""
    if not data:
        return
    (name, argument), rest = _CALLS[data[0] % len(_CALLS)], data[1:]
    try:
        sent = json.loads(rest)
    except (ValueError, RecursionError):
        sent = rest.decode("utf-8", "replace")
    given = sent if isinstance(sent, dict) else {argument: sent}
    with suppress(InvalidParameter, InvalidRequest):
        _run(_tools().call(name, given, _take_no_notice))


async def _take_no_notice(done: int, total: int) -> None:
    """The report of a call."""


# --- The ways to an answer ----------------------------------------------------------------------------------------


class _Recorder:
    """An application that keeps the scopes and bodies of its requests."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.requests: list[tuple[dict[str, Any], bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._application, name)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        kept, body = dict(scope), bytearray()

        async def read() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        await self._application(scope, read, send)
        self.requests.append((kept, bytes(body)))


@cache
def _same() -> tuple[Ways, _Recorder, Server]:
    """Three ways through the protocol, what the first one gives to its application, and another application."""

    async def start() -> tuple[Ways, _Recorder, Server]:
        ways = Ways()
        config = ways.full._config
        config.loaded_app = recorder = _Recorder(config.loaded_app)
        return ways, recorder, Server(ways.clock, FullPathProtocol)

    ways, recorder, plain = _run(start())
    _ends.callback(lambda: _run(plain.close()))
    _ends.callback(lambda: _run(ways.close()))
    return ways, recorder, plain


def ways(data: bytes) -> None:
    """A request has one answer, byte for byte: prepared, through the whole path, and as any ASGI server would send it.

    The first byte chooses the method. A line each: the target, the header, and a body after an empty line.
    """
    if not data:
        return
    method = ("GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE")[data[0] % 6].encode()
    head, _, body = data[1:].partition(b"\n\n")
    target, *headers = head.split(b"\n")[: _MAX_HEADERS + 1]
    if body:
        headers.append(b"Content-Length: %d" % len(body))
    request = b"\r\n".join([method + b" " + target + b" HTTP/1.1", b"Host: x", *headers, b"", body])
    same, recorder, plain = _same()
    recorder.requests.clear()
    _run(same.compare([([request], 0.0)]))
    if len(recorder.requests) != _ROUNDS:
        return  # the protocol refused the request, or took it for more than one
    plain.put_all(86_400.0)
    answers = [_run(_exchange(plain._config.loaded_app, *each)) for each in recorder.requests]
    expected, _ = _run(same.full.answers(request))
    assert _is_same(expected, *answers[-1], method), (request, expected, answers[-1])


def _is_same(written: bytes, status: int, headers: list[tuple[bytes, bytes]], body: bytes, method: bytes) -> bool:
    head, _, sent = written.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100 "):
        head, _, sent = sent.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    left_out = (b"date:", b"connection:", b"transfer-encoding:")
    shown = sorted(line for line in lines if not line.startswith(left_out))
    if b"transfer-encoding: chunked" in lines:
        sent = body
    return (
        int(first.split()[1]) == status
        and shown == sorted(name + b": " + value for name, value in headers)
        and sent == (b"" if method == b"HEAD" else body)
    )


# --- ASGI ---------------------------------------------------------------------------------------------------------


def _scope(method: str, path: bytes, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.decode(),
        "raw_path": path,
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("192.0.2.7", 50_000),
        "server": ("127.0.0.1", 8_000),
    }


async def _exchange(
    application: Callable[..., Any], scope: dict[str, Any], body: bytes
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of the answer of an ASGI application."""
    pieces, sent, ended = [body], [], asyncio.Event()

    async def receive() -> dict[str, Any]:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(), "more_body": False}
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            ended.set()

    await application(scope, receive, send)
    return sent[0]["status"], sent[0]["headers"], b"".join(message.get("body", b"") for message in sent[1:])


SERVICES: Final[dict[str, Callable[[bytes], None]]] = {target.__name__: target for target in (admin, tools, ways)}
