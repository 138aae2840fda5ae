"""The rows of real service: kinds of requests and of settings beside a reference, with the ratio that is wanted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.contestants import ASGI_ALONE, BARE_ASGI, EXPRESS_OFF, EXPRESS_ON, NGINX_CACHE, Contestant, proxy
from bench.names import HOT, path_of
from bench.plan import LARGE, Plan
from bench.records import entry_of, target_of
from bench.requests import BROWSER, Load, Names
from bench.servers import plain_environment, program
from bench.startup import RECORDS, large_store

#: A name that is known not to exist.
MISSING: Final = "10.1000/missing"
_REST: Final = "/api/handles" + path_of(HOT)
_ENTRY: Final = entry_of(HOT, 0.0).size
_RATE: Final = {"DOI_PROXY_CLIENT_RATE": "1000000", "DOI_PROXY_CLIENT_BURST": "1000000"}
_LARGE_URL: Final = {"DOI_PROXY_STORE_URL": f"sqlite:///{{folder}}/{LARGE}"}
_FIFTH: Final = {
    **_LARGE_URL,
    "DOI_PROXY_CACHE_MEMORY_BYTES": str(_ENTRY * RECORDS // 5),
    "DOI_PROXY_EXPRESS_MEMORY_BYTES": str(_ENTRY * RECORDS // 10),
}
#: Memory for so few names that the others are read from the store.
_STORE_ALONE: Final = {
    **_LARGE_URL,
    "DOI_PROXY_CACHE_MEMORY_BYTES": str(2**20),
    "DOI_PROXY_EXPRESS_MEMORY_BYTES": str(2**20),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `wanted` is the processor time of an answer of the reference, divided by that of an answer of ours.

    Without a reference, it is the most processor time of an answer, in microseconds.
    """

    key: str
    what: str
    load: Load
    ours: Contestant
    against: Contestant | None
    wanted: float
    #: Makes the files that the settings name.
    prepare: Callable[[Plan], object] = lambda plan: None


def _write_denied(plan: Plan) -> None:
    (plan.folder / "denied.txt").write_text("203.0.113.0/24\n", encoding="ascii")


def _import_registry(plan: Plan) -> None:
    table, store = plan.folder / "registry.csv", plan.folder / "registry.sqlite3"
    table.write_text(f"doi,url\n{HOT},{target_of(HOT)}\n", encoding="ascii")
    subprocess.run(
        [program("doi-proxy"), "cache", "import", str(table)],
        env={**plain_environment(), "DOI_PROXY_STORE_URL": f"sqlite:///{store}"},
        stdout=subprocess.DEVNULL,
        check=True,
    )


_SEALED: Final = {"DOI_PROXY_MODE": "sealed", "DOI_PROXY_STORE_URL": "sqlite:///{folder}/registry.sqlite3"}
_LIMITED: Final = proxy("doi-proxy, client_rate", settings=_RATE)
_DENYING: Final = proxy("doi-proxy, one denied network", settings={"DOI_PROXY_CLIENT_DENY_FILE": "{folder}/denied.txt"})
_LOGGING: Final = proxy("doi-proxy, access log", settings={"DOI_PROXY_ACCESS_LOG": "json"})
_MILLION: Final = proxy("doi-proxy, memory for a fifth", settings=_FIFTH)
_STORED: Final = proxy("doi-proxy, store alone", settings=_STORE_ALONE)
_REGISTRY: Final = proxy("doi-proxy, sealed", settings=_SEALED)
#: Records of the store are past their TTL, and no query is answered or sent.
_STALE: Final = {"DOI_PROXY_CACHE_TTL_CEILING": "1"}
_DOWN: Final = proxy("doi-proxy, upstream down", settings={**_STALE, "DOI_PROXY_UPSTREAM_URL": "http://127.0.0.1:9"})
_CLOSED: Final = proxy("doi-proxy, sealed and stale", settings={**_STALE, "DOI_PROXY_MODE": "sealed"})

_HOT: Final = Load("hot")
_HOT_BROWSER: Final = Load("hot, browser", headers=BROWSER)
_CLIENTS: Final = Load("2,000 clients", clients=2_000)
_JSON: Final = Load("REST", _REST, status=200)
_TYPE: Final = Load("?type=URL", _REST + "?type=URL", status=200)
_INDEX: Final = Load("?index=1", _REST + "?index=1", status=200)
_APPEND: Final = Load("?urlappend=", path_of(HOT) + "?urlappend=%3Fsource%3Dproxy")
_NO_REDIRECT: Final = Load("?noredirect", path_of(HOT) + "?noredirect", headers=BROWSER, status=200)
_NOT_FOUND: Final = Load("not found", path_of(MISSING), headers=BROWSER, status=404)
_NEW: Final = Load("new name", path_of(MISSING) + "-too", headers=BROWSER, status=502)
_MIXED: Final = Load("90/10", names=Names(20_000, 0.85, one_new_in=10))
_TWENTY: Final = Load("20,000 names", names=Names(20_000, 0.85))
_UNIFORM: Final = Load("every name once", names=Names(RECORDS, 0.0, warm=False))


def _outage(key: str, what: str, load: Load, wanted: float) -> tuple[Row, ...]:
    """A hot answer in an outage beside the same one when it is fresh."""
    return (
        Row(f"down-{key}", f"{what}, past its TTL, the upstream down", load, _DOWN, EXPRESS_ON, wanted),
        Row(f"sealed-{key}", f"{what}, past its TTL, sealed", load, _CLOSED, EXPRESS_ON, wanted),
    )


def _million(exponent: float) -> Row:
    load = Load(f"1,000,000 names, {exponent}", names=Names(RECORDS, exponent, warm=False))
    what = f"1,000,000 names by Zipf {exponent}, memory for a fifth"
    return Row(f"million-{exponent}", what, load, _MILLION, None, 30.0, large_store)


ROWS: Final = (
    Row("hot", "one hot name", _HOT, EXPRESS_ON, BARE_ASGI, 2.2),
    Row("hot-browser", "one hot name, a browser's headers", _HOT_BROWSER, EXPRESS_ON, BARE_ASGI, 2.43),
    Row("rate", "`client_rate` is set", _HOT, _LIMITED, BARE_ASGI, 1.8),
    Row("denied", "one network is denied", _HOT, _DENYING, BARE_ASGI, 1.8, _write_denied),
    Row("clients", "2,000 clients behind a front proxy, `client_rate`", _CLIENTS, _LIMITED, BARE_ASGI, 1.8),
    Row("log", "access log (JSON)", _HOT, _LOGGING, BARE_ASGI, 1.3),
    Row("full", "the whole path, a browser's headers", _HOT_BROWSER, EXPRESS_OFF, BARE_ASGI, 0.9),
    Row("asgi", "the whole path under plain uvicorn", _HOT_BROWSER, ASGI_ALONE, BARE_ASGI, 0.5),
    Row("type", "REST, `?type=URL`", _TYPE, EXPRESS_ON, BARE_ASGI, 1.5),
    Row("index", "REST, `?index=1`", _INDEX, EXPRESS_ON, BARE_ASGI, 1.5),
    Row("urlappend", "a redirect with `?urlappend=`", _APPEND, EXPRESS_ON, BARE_ASGI, 1.5),
    Row("noredirect", "`?noredirect` in a browser", _NO_REDIRECT, EXPRESS_ON, BARE_ASGI, 0.5),
    Row("not-found", "a known not-found page in a browser", _NOT_FOUND, EXPRESS_ON, BARE_ASGI, 0.5),
    Row("zipf", "20,000 names by Zipf 0.85", _TWENTY, EXPRESS_ON, NGINX_CACHE, 0.95),
    _million(0.9),
    _million(1.0),
    _million(1.1),
    Row("store", "a name that only the store has", _UNIFORM, _STORED, None, 70.0, large_store),
    Row("registry", "a hot registry record, sealed", _HOT, _REGISTRY, EXPRESS_ON, 0.8, _import_registry),
    *_outage("redirect", "a hot redirect", _HOT, 0.9),
    *_outage("rest", "hot REST", _JSON, 0.9),
    *_outage("page", "`?noredirect` in a browser", _NO_REDIRECT, 0.8),
    Row("down-new", "a name that could not be verified, beside one not found", _NEW, _DOWN, EXPRESS_ON, 0.3),
    Row("mix", "90 % known and 10 % new names", _MIXED, EXPRESS_ON, NGINX_CACHE, 0.3),
)
