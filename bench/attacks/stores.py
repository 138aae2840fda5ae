"""Attacks by stored data: answers for one client in a shared cache, swapped and impossible values in the stores."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import redis

from bench.attacks.world import Checkout, Reply, Row, get, nginx, proxy, upstream
from tests.features.valkey.valkey_server import start_valkey
from tests.hostile.records import PREFIX
from tests.hostile.upstream import BY_ADDRESS, CAMPUS, INSIDE, OUTSIDE, url_of

_FIRST, _SECOND = "10.1000/first", "10.1000/second"
_STRANGER: Final = "127.0.0.3"
#: Prints one entry in the checkout's format. Arguments: the key, then the three times.
_PACK: Final = """
import sys
from doi_proxy.cache.entry import Entry
from doi_proxy.store.stored_entry import pack
from handle_protocol.referral import Answer, ResponseCode
import msgspec
values = msgspec.json.encode([{"index": 1, "type": "URL", "ttl": 86400, "timestamp": "2024-01-01T00:00:00Z",
    "data": {"format": "string", "value": "https://stored.example/"}}])
answer = Answer(ResponseCode.SUCCESS, values)
print(pack(Entry(sys.argv[1], answer, *map(float, sys.argv[2:]))).hex())
"""
_NO_UPSTREAM: Final = "http://127.0.0.1:9"


def personal(checkout: Checkout) -> Iterator[Row]:
    """A redirect that depends on the address, through nginx with the shipped cache configuration."""
    with upstream() as url, proxy(checkout, url) as running, nginx(checkout, running.port, cached=True) as front:
        inside = get(front, f"/{BY_ADDRESS}/licensed", source=CAMPUS)
        outside = [get(front, f"/{BY_ADDRESS}/licensed", source=_STRANGER) for _ in range(5)]
    wrong = sum(reply.location != OUTSIDE for reply in outside)
    yield Row(
        "a campus link through the nginx cache: outsiders who get it",
        f"{wrong} of 5 ({inside.headers.get('cache-control', 'no Cache-Control')})",
        wrong == 0 and inside.location == INSIDE,
    )


def swapped(checkout: Checkout) -> Iterator[Row]:
    """The values of two entries are swapped, in both stores, while the proxy is down."""
    with tempfile.TemporaryDirectory() as folder:
        yield _swap(checkout, "SQLite", f"sqlite:///{folder}/store.sqlite3", lambda: _swap_rows(Path(folder)))
    server = start_valkey()
    try:
        yield _swap(checkout, "Valkey", f"valkey://127.0.0.1:{server.port}/0", lambda: _swap_keys(server.port))
    finally:
        server.stop()


def _swap(checkout: Checkout, kind: str, store: str, swap: Callable[[], None]) -> Row:
    with upstream() as url:
        with proxy(checkout, url, store=store) as running:
            for name in (_FIRST, _SECOND):
                get(running.port, f"/{name}")
        swap()
        with proxy(checkout, url, store=store) as running:
            replies = {name: get(running.port, f"/{name}") for name in (_FIRST, _SECOND)}
    wrong = sum(reply.location != url_of(name) for name, reply in replies.items())
    return Row(f"two values swapped in {kind}: wrong answers", f"{wrong} of 2", wrong == 0)


def _swap_rows(folder: Path) -> None:
    database = sqlite3.connect(folder / "store.sqlite3")
    try:
        rows = dict(database.execute("SELECT key, data FROM entries WHERE key LIKE '10.1000/%'").fetchall())
        first, second = rows
        for key, other in ((first, second), (second, first)):
            database.execute("UPDATE entries SET data = ? WHERE key = ?", (rows[other], key))
        database.commit()
    finally:
        database.close()


def _swap_keys(port: int) -> None:
    with redis.Redis(port=port) as client:
        keys = [key for key in client.scan_iter() if b"10.1000/" in key and client.type(key) == b"string"]
        first, second = keys
        values = client.mget(keys)
        client.set(first, values[1])
        client.set(second, values[0])


def numbers(checkout: Checkout) -> Iterator[Row]:
    """A TTL of 400 digits, impossible stored times, text instead of bytes, a bucket that is blocked in the future."""
    with upstream() as url, proxy(checkout, url) as running:
        status = get(running.port, f"/{PREFIX}/long-ttl").status
        yield Row("a `ttl` of 400 digits: status", f"{status}", status in (302, 502))
    for label, times in (("infinity", ("0", "inf", "inf")), ("1e13", ("1e13", "2e13", "2e13"))):
        key = _FIRST.upper()
        data = bytes.fromhex(checkout.run(_PACK, key, *times))
        reply = _stored(checkout, key, data)
        yield Row(f"stored times of {label}: status, Cache-Control", _describe(reply), reply.status not in (0, 500))
    reply = _stored(checkout, _FIRST.upper(), "text")
    yield Row("text instead of bytes in the store: status", _describe(reply), reply.status not in (0, 500))
    yield _blocked(checkout)


def _describe(reply: Reply) -> str:
    return f"{reply.status}, {reply.headers.get('cache-control', 'none')}"


def _stored(checkout: Checkout, key: str, data: bytes | str) -> Reply:
    with tempfile.TemporaryDirectory() as folder, upstream() as url:
        store = f"sqlite:///{folder}/store.sqlite3"
        with proxy(checkout, url, store=store) as running:
            get(running.port, f"/{_SECOND}")
        database = sqlite3.connect(Path(folder, "store.sqlite3"))
        row = (key, 9e9, 9e9, data)
        database.execute("INSERT INTO entries (key, stale_until, last_used, data) VALUES (?, ?, ?, ?)", row)
        database.commit()
        database.close()
        with proxy(checkout, url, store=store) as running:
            return get(running.port, f"/{_FIRST}")


def _blocked(checkout: Checkout) -> Row:
    with tempfile.TemporaryDirectory() as folder, upstream() as url:
        store = f"sqlite:///{folder}/store.sqlite3"
        with proxy(checkout, url, store=store) as running:
            get(running.port, f"/{_SECOND}")
        for file in Path(folder).iterdir():
            if file.suffix.endswith(("-wal", "-shm")) or not file.read_bytes().startswith(b"SQLite format 3"):
                continue
            database = sqlite3.connect(file)
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'buckets'").fetchone():
                database.execute("UPDATE buckets SET blocked_until = 1e15, at = 1e15")
                database.commit()
            database.close()
        with proxy(checkout, url, store=store) as running:
            reply = get(running.port, f"/{_FIRST}")
    wait = reply.headers.get("retry-after", "")
    return Row(
        "a bucket that is blocked far in the future: status, Retry-After",
        f"{reply.status}, {wait or 'none'}",
        reply.status == 302 or (wait.isdigit() and int(wait) <= 60),
    )
