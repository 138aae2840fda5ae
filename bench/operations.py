"""The single operations of an answer, each ready to be repeated.

`python -m bench.operations COUNT` repeats each COUNT times inside a call of MARK, where callgrind counts.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bench.constant import bare
from bench.in_process import InProcess
from bench.names import HOT, path_of, synthetic
from bench.records import answer_of, entry_of, target_of, values_of
from bench.requests import BROWSER
from bench.wire import Wire, connected, request_of
from doi_names.name import HandleName
from doi_names.presentation import read_path, url_path
from doi_proxy.assembly.core import build_pages
from doi_proxy.assembly.features import find_records
from doi_proxy.assembly.settings import load
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.privacy.line_writer import LineFormat, LineWriter, LogLine, new_access_log
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.resolver.prefix_chain import ReportContact
from doi_proxy.resolver.resolution import Client
from doi_proxy.resolver.target import choose_location
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.store.stored_entry import pack, unpack
from doi_proxy.web.name_pages import describe_not_found, describe_record
from doi_proxy.web.negotiation import write_moment
from doi_proxy.web.pages import Link
from doi_proxy.web.request_path import PREPARED
from handle_protocol.location import read_locations
from handle_protocol.referral import read_answer
from handle_protocol.value import read_values
from tests.registry_records import write_registry

#: Repeats the operation `count` times.
Operation = Callable[[int], None]
#: The same time in every run. The records are fresh for ten years.
_NOW: Final = 1_700_000_000.0
_REDIRECT: Final = path_of(HOT)
_REST: Final = "/api/handles" + path_of(HOT)
_HOT, _HOT_REST = request_of(_REDIRECT), request_of(_REST)
_FROM_BROWSER: Final = request_of(_REDIRECT, *BROWSER)
_LANE: Final = "server and express lane, a hot redirect"
_RATE: Final = {"client_rate": 1e6, "client_burst": 1e6}
_CLIENTS: Final = 2_000
#: The privacy level that is the default.
_LEVEL: Final = 2
_LOCATIONS: Final = (
    '<locations chooseby="country,weighted">'
    '<location id="0" href="https://europe.example/article" country="gb" weight="0"/>'
    '<location id="1" href="https://america.example/article" country="us" weight="1"/>'
    '<location id="2" href="https://world.example/article" weight="1"/></locations>'
)


def _repeat(work: Callable[[], object]) -> Operation:
    def run(count: int) -> None:
        for _ in range(count):
            work()

    return run


def _repeat_async(work: Callable[[], Coroutine[Any, Any, object]]) -> Operation:
    loop = uvloop.new_event_loop()

    async def again(count: int) -> None:
        for _ in range(count):
            await work()

    return lambda count: loop.run_until_complete(again(count))


def _read_name() -> Operation:
    path = path_of("10.1000/a%b<c>d").encode()
    return _repeat(lambda: read_path(path).key)


def _write_name() -> Operation:
    name = read_path(b"/10.1000/a%25b%3Cc%3Ed")
    return _repeat(lambda: url_path(name))


def _read_answer() -> Operation:
    body = answer_of(HOT)
    return _repeat(lambda: read_answer(body, HOT))


def _read_values() -> Operation:
    values = values_of(HOT)
    return _repeat(lambda: read_values(values))


def _pack() -> Operation:
    entry = entry_of(HOT, _NOW)
    return _repeat(lambda: unpack(entry.key, pack(entry)))


def _memory_get() -> Operation:
    memory = MemoryStore(2**30, clock=lambda: _NOW)
    keys = [f"10.1000/{number}" for number in range(1000)]
    for key in keys:
        memory.keep(entry_of(key, _NOW))

    def run(count: int) -> None:
        for number in range(count):
            memory.peek(keys[number % 1000])

    return run


def _memory_put() -> Operation:
    memory = MemoryStore(2**30, clock=lambda: _NOW)
    entries = [entry_of(f"10.1000/{number}", _NOW) for number in range(1000)]

    def run(count: int) -> None:
        for number in range(count):
            memory.keep(entries[number % 1000])

    return run


def _sqlite_get() -> Operation:
    # The folder is deleted here, but the store has the file open.
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "units.sqlite3", clock=lambda: _NOW, max_bytes=2**30, records=find_records())
        entries = [entry_of(f"10.1000/{number}", _NOW) for number in range(1000)]
        asyncio.run(_fill(store, entries))
    keys = cycle([entry.key for entry in entries])
    return _repeat_async(lambda: store.get(next(keys)))


async def _fill(store: SqliteStore | TieredStore, entries: Iterable[Entry]) -> None:
    for entry in entries:
        await store.put(entry)
    await store.flush()


def _choose() -> Operation:
    locations = read_locations(_LOCATIONS).items
    client = Client(country="us", chance=0.5)
    return _repeat(lambda: choose_location(locations, "country,weighted", client, ()))


def _read_locations() -> Operation:
    return _repeat(lambda: read_locations(_LOCATIONS))


def _hot(path: str) -> Operation:
    one = InProcess(express_lane=False)
    one.keep([HOT], time.time())
    return _repeat_async(lambda: one.ask(path))


def _over_the_wire(
    *requests: bytes,
    express: bool,
    protocol: type[HttpToolsProtocol] = ServerProtocol,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Operation:
    one = InProcess(express_lane=express, **settings)
    one.keep([HOT], time.time())
    return _connect(one.application, *requests, protocol=protocol)


def _page(kind: str) -> Operation:
    """The facts and the template of a page, without the request and the sections around them."""
    pages, link, name = build_pages(load({}, {})), Link(""), HandleName(HOT)
    contact = ReportContact("Crossref", "support@crossref.example")
    # A section without names, such as the suggestions for most names.
    sections = {"blocks": ["suggestions.html"], "registered": [], "suggestions": [], "around": []}
    value = read_values(values_of(HOT)).values[:1]
    about = {"agency": "Crossref", "checked": write_moment(pages.texts("en"), _NOW)}

    def show(template: str, describe: Callable[[], Mapping[str, Any]]) -> bytes:
        return pages.render(template, link, "en", f"{template}.title_", name, **describe())

    draw: dict[str, Callable[[], bytes]] = {
        "home": lambda: pages.home(link, "en"),
        "not_found": lambda: show("not_found", lambda: describe_not_found(pages, "en", name, contact) | sections),
        "record": lambda: show("values", lambda: describe_record(value, **about)),
    }
    return _repeat(draw[kind])


def _stored() -> Operation:
    # In turn, more names than memory has room for: each is read from the store and takes the place of another.
    names = synthetic(400)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/units.sqlite3"
        one = InProcess(store_url=url, cache_memory_bytes=2**17, express_memory_bytes=2**17)
        asyncio.run(_fill(one.cache, [entry_of(name, time.time()) for name in names]))
    operation = _connect(one.application, *map(request_of, map(path_of, names)))
    operation(2 * len(names))
    return operation


def _registry() -> Operation:
    with tempfile.TemporaryDirectory() as folder:
        write_registry(Path(folder) / "units.sqlite3", time.time, {HOT: target_of(HOT)})
        one = InProcess(store_url=f"sqlite:///{folder}/units.sqlite3", mode="sealed")
        operation = _connect(one.application, _HOT)
        operation(10)  # memory has the record before its file is deleted
    return operation


def _connect(application: Any, *requests: bytes, protocol: type[HttpToolsProtocol] = ServerProtocol) -> Operation:
    loop = uvloop.new_event_loop()
    connection = loop.run_until_complete(connected(application, protocol))
    in_turn = cycle(requests)

    async def again(count: int) -> None:
        for _ in range(count):
            await connection.send(next(in_turn))

    return lambda count: loop.run_until_complete(again(count))


def _new_connections(application: Any, protocol: type[HttpToolsProtocol] = ServerProtocol) -> Operation:
    wire, request = Wire(application, protocol), request_of(_REDIRECT, "Connection: close")

    async def connect() -> None:
        connection = wire.connect()
        await connection.send(request)
        connection.lose()

    return _repeat_async(connect)


def _new_to_lane() -> Operation:
    one = InProcess()
    one.keep([HOT], time.time())
    return _new_connections(one.application)


def _clients() -> Operation:
    clients = [f"198.18.{number // 250}.{number % 250 + 1}" for number in range(_CLIENTS)]
    requests = [request_of(_REDIRECT, f"X-Forwarded-For: {client}") for client in clients]
    operation = _over_the_wire(*requests, express=True, settings=_RATE)
    operation(_CLIENTS)  # each client is known
    return operation


def _logged() -> Operation:
    # The lines are written by a thread: its time is part of the row, its instructions are not.
    writer = LineWriter(os.open(os.devnull, os.O_WRONLY), LineFormat("json", _LEVEL))
    return _over_the_wire(_HOT, express=True, settings={"access_log": new_access_log(_LEVEL, time.time, writer.write)})


def _format_line() -> Operation:
    form, path = LineFormat("json", _LEVEL), _REDIRECT.encode()
    line = LogLine(_NOW, "0123456789abcdef", "", "GET", path, b"", PREPARED, 302, 0, 1e-5, "hit; ttl=86400")
    return _repeat(lambda: form(line))


OPERATIONS: Final[dict[str, tuple[str, Callable[[], Operation]]]] = {
    "read_name": ("codec: path to name", _read_name),
    "write_name": ("codec: name to path", _write_name),
    "read_answer": ("decode an upstream answer", _read_answer),
    "read_values": ("read a record's values", _read_values),
    "pack": ("store format, there and back", _pack),
    "memory_get": ("memory tier, get", _memory_get),
    "memory_put": ("memory tier, put", _memory_put),
    "sqlite_get": ("SQLite store, get", _sqlite_get),
    "read_locations": ("read a 10320/loc value", _read_locations),
    "choose": ("choose one of three locations", _choose),
    "redirect": ("the application, a hot redirect", lambda: _hot(_REDIRECT)),
    "rest": ("the application, a hot REST answer", lambda: _hot(_REST)),
    "page_home": ("the home page, not prepared", lambda: _page("home")),
    "page_not_found": ("a page of a name that is not found, not prepared", lambda: _page("not_found")),
    "page_record": ("the page of a record of one value, not prepared", lambda: _page("record")),
    "server_bare": ("server and bare ASGI, a constant 302", lambda: _connect(bare, _HOT, protocol=HttpToolsProtocol)),
    "server_full": ("server and full path, a hot redirect", lambda: _over_the_wire(_HOT, express=False)),
    "server_full_rest": ("server and full path, a hot REST answer", lambda: _over_the_wire(_HOT_REST, express=False)),
    "bare_browser": (
        "server and bare ASGI, a browser's headers",
        lambda: _connect(bare, _FROM_BROWSER, protocol=HttpToolsProtocol),
    ),
    "full_browser": (
        "server and full path, a browser's headers",
        lambda: _over_the_wire(_FROM_BROWSER, express=False),
    ),
    "asgi_browser": (
        "plain uvicorn and full path, a browser's headers",
        lambda: _over_the_wire(_FROM_BROWSER, express=False, protocol=HttpToolsProtocol),
    ),
    "server_lane": ("server and express lane, a hot redirect", lambda: _over_the_wire(_HOT, express=True)),
    "server_lane_rest": ("server and express lane, a hot REST answer", lambda: _over_the_wire(_HOT_REST, express=True)),
    "server_lane_rate": (f"{_LANE}, `client_rate`", lambda: _over_the_wire(_HOT, express=True, settings=_RATE)),
    "server_lane_clients": (f"{_LANE}, `client_rate`, 2,000 clients behind a front proxy", _clients),
    "server_lane_log": (f"{_LANE}, access log, without its thread", _logged),
    "format_line": ("access log, a line as JSON", _format_line),
    "server_lane_registry": (f"{_LANE} of a registry record, sealed", _registry),
    "bare_connection": (
        "server and bare ASGI, a new connection with one request",
        lambda: _new_connections(bare, protocol=HttpToolsProtocol),
    ),
    "lane_connection": ("server and express lane, a new connection with one hot redirect", _new_to_lane),
    "server_lane_store": ("server and express lane, a redirect that only the store has", _stored),
}

#: A function of libffi that only `run_inside_mark` calls while operations run.
MARK: Final = "ffi_call"


def run_inside_mark(operation: Operation, count: int) -> None:
    """Repeat an operation `count` times inside a call of MARK."""
    call = ctypes.pythonapi.PyObject_CallNoArgs
    call.argtypes, call.restype = [ctypes.py_object], ctypes.py_object
    call(lambda: operation(count))


if __name__ == "__main__":
    gc.disable()
    for _, build in OPERATIONS.values():
        one = build()
        one(10)  # fills the caches, and lets the interpreter specialise the code
        run_inside_mark(one, int(sys.argv[1]))
