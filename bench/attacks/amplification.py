"""What one request costs: upstream queries, processor time and bytes, and what its client is charged for it.

`python -m bench.attacks amplification` writes the table of docs/security.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final
from urllib.request import Request, urlopen

from bench.attacks.connections import ATTACKER
from bench.attacks.world import ROOT, Checkout, Proxy, Row, connect, get, proxy, upstream
from tests.hostile.clients import head, read, send
from tests.values import value

#: What an idle client may send at once. One request a second comes back.
_BURST: Final = 400
#: More queries than this need a charge of a hundred requests.
_CHEAP: Final = 64
_NEIGHBOUR: Final = "127.0.113.9"
_TEXT: Final = "Content-Type: text/plain"
_PAGE: Final = ROOT / "docs/security.md"
_HEADING: Final = "| request | upstream queries | answer | processor time | requests that are charged |\n"


@dataclass(frozen=True, slots=True)
class _Request:
    label: str
    target: str
    body: bytes = b""
    lines: tuple[str, ...] = ()


def _names(prefix: str, count: int) -> str:
    return "".join(f"{prefix}{number}\n" for number in range(count))


#: Large requests. The alias "10.6300/n-m" stands for "10.6300/n-(m+1)", and the fifth for a record.
_REQUESTS: Final = (
    _Request("a redirect", "/10.1000/once"),
    _Request("a redirect over 20 aliases", "/10.6300/long-0"),
    _Request("the same as JSON", "/api/handles/10.6300/json-0"),
    _Request("the page of a record", "/10.1000/page?noredirect", lines=("Accept: text/html",)),
    _Request("`/ra/` of 50 prefixes", "/ra/" + ",".join(f"10.{number}" for number in range(6400, 6450))),
    _Request("a list of 100 aliases", "/api/resolve", _names("10.6300/list-", 100).encode(), (_TEXT,)),
    _Request(
        "a list of 100 broken names, looked up",
        "/api/resolve?suggest=checked&fields=ra",
        _names("10.1000/gone.pdf.", 100).encode(),
        (_TEXT,),
    ),
    _Request("`/api/extract`, 200 kB", "/api/extract", b"see doi:10.1000/182. " * 10_000, (_TEXT,)),
    _Request("`/api/parse`, 1,000 texts", "/api/parse", b"see doi:10.1000/182.\n" * 1_000, (_TEXT,)),
    _Request("`/openapi.json`", "/openapi.json"),
)


def amplification(checkout: Checkout) -> Iterator[Row]:
    """The costs of each request, on a proxy of its own; another client asks at the end."""
    rows = []
    for request in _REQUESTS:
        with upstream() as url, proxy(checkout, url, client_rate=1, client_burst=_BURST) as running:
            port = int(url.rpartition(":")[2])
            _put_aliases(port)
            get(running.port, "/10.1000/warm", source=_NEIGHBOUR)
            before, spent = _queries(port), running.spent()
            size = _send(running, request)
            queries, seconds = _queries(port) - before, running.spent() - spent
            left = sum(1 for _ in takewhile(lambda status: status != 429, _ask_often(running)))
            charged = max(0, _BURST - left)
            neighbour = get(running.port, "/10.1000/neighbour", source=_NEIGHBOUR)
        rows.append((request.label, queries, size, seconds, charged))
        holds = neighbour.status == 302 and (queries <= _CHEAP or charged >= 100)
        figure = f"{queries} queries, {size / 1000:.0f} kB, {seconds * 1000:.0f} ms, charged {charged}"
        yield Row(request.label, f"{figure}; another client: {neighbour.seconds:.2f} s", holds)
    if checkout.folder == ROOT:
        _write(rows)


def _put_aliases(port: int) -> None:
    chains = [("long", 20), ("json", 20), *[(f"list-{number}", 5) for number in range(100)]]
    for name, length in chains:
        for step in range(length):
            alias = name if step == 0 and name.startswith("list") else f"{name}-{step}"
            after = f"10.6300/{name}-{step + 1}" if step + 1 < length else "10.1000/end"
            body = json.dumps({"handle": f"10.6300/{alias}", "values": [value(1, "HS_ALIAS", after)]}).encode()
            with urlopen(Request(f"http://127.0.0.1:{port}/control/put", body)) as answer:
                answer.read()


def _queries(port: int) -> int:
    return int(json.loads(get(port, "/control/counts").body)["asked"])


def _send(running: Proxy, request: _Request) -> int:
    """Send a request, and read its answer. Returns the bytes."""
    method = "POST" if request.body else "GET"
    length = (f"Content-Length: {len(request.body)}",) if request.body else ()
    with connect(running.port, source=ATTACKER, timeout=60.0) as connection:
        lines = (*request.lines, *length, "Connection: close")
        send(connection, head(request.target, *lines, method=method) + request.body)
        return len(read(connection, 60.0))


def _ask_often(running: Proxy) -> Iterator[int]:
    for _ in range(_BURST + 1):
        yield get(running.port, "/10.1000/warm", source=ATTACKER).status


def _write(rows: list[tuple[str, int, int, float, int]]) -> None:
    page = _PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_HEADING)
    after = rest[rest.index("\n\n") :]
    lines = [
        f"| {label} | {queries} | {size / 1000:,.1f} kB | {seconds * 1000:.0f} ms | {charged} |"
        for label, queries, size, seconds, charged in rows
    ]
    table = _HEADING + "| --- | ---: | ---: | ---: | ---: |\n" + "\n".join(lines)
    _PAGE.write_text(before + table + after, encoding="utf-8")
