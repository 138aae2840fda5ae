"""Every error of a library leaves the client as one of ours."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import anyio
import httpx
import pytest

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify, UpstreamTimeout
from doi_proxy.upstream.client import translate_error
from doi_proxy.upstream.source import UpstreamQuery
from tests.parts import usual_api
from tests.table import table

pytestmark = pytest.mark.anyio


def exceptions_of(*modules: object) -> list[type[Exception]]:
    found = {item for module in modules for item in vars(module).values() if isinstance(item, type)}
    return sorted(
        (kind for kind in found if issubclass(kind, Exception)), key=lambda kind: (kind.__module__, kind.__name__)
    )


FOREIGN = [
    *exceptions_of(httpx, anyio, aiohttp),
    OSError,
    ConnectionResetError,
    BrokenPipeError,
    PermissionError,
    TimeoutError,
    ssl.SSLError,
    ssl.SSLCertVerificationError,
    asyncio.IncompleteReadError,
    asyncio.InvalidStateError,
    UnicodeError,
    ValueError,
    KeyError,
    RuntimeError,
    AttributeError,
    MemoryError,
]


class Raising(httpx.AsyncBaseTransport):
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise self._error


def made(kind: type[Exception]) -> Exception:
    """An instance, however many arguments its constructor wants and its text is made of."""
    plain = type(kind.__name__, (kind,), {"__init__": Exception.__init__, "__str__": Exception.__str__})
    error = plain("no details")
    assert isinstance(error, Exception)
    return error


def test_the_list_holds_the_libraries_errors() -> None:
    assert {httpx.ConnectTimeout, httpx.InvalidURL, httpx.StreamConsumed, aiohttp.ClientPayloadError} <= {*FOREIGN}
    assert len(FOREIGN) > 60


@table("kind", FOREIGN, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
async def test_an_error_of_a_library_is_could_not_verify(kind: type[Exception]) -> None:
    api = usual_api("http://upstream.example", transport=Raising(made(kind)))
    try:
        with pytest.raises(CouldNotVerify) as failure:
            await api.fetch(UpstreamQuery(HandleName("10.1234/x")))
    finally:
        await api.aclose()
    assert failure.value.message
    assert isinstance(failure.value.__cause__, kind)


@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if issubclass(kind, (httpx.TimeoutException, TimeoutError))])
def test_a_timeout_is_told_as_one(kind: type[Exception]) -> None:
    assert type(translate_error(made(kind))) is UpstreamTimeout
