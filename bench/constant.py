"""The two Python applications to compare with: a constant answer, as bare ASGI and as FastAPI routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from fastapi import FastAPI
from starlette.responses import Response

from bench.names import HOT
from bench.records import answer_of, target_of

_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_API: Final = "/api/"
_TARGET: Final = target_of(HOT)
_BODY: Final = answer_of(HOT)
_JSON: Final = "application/json;charset=utf-8"


async def bare(scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
    """The smallest ASGI application: a 302 without a body, and a constant record under /api/."""
    if scope["path"].startswith(_API):
        headers = [(b"content-type", _JSON.encode()), (b"content-length", b"%d" % len(_BODY))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": _BODY})
        return
    headers = [(b"location", _TARGET.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 302, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def fastapi() -> FastAPI:
    """The same two answers as FastAPI routes."""
    app = FastAPI(openapi_url=None)

    @app.get("/api/handles/{name:path}")
    async def record(name: str) -> Response:
        return Response(_BODY, media_type=_JSON)

    @app.get("/{name:path}")
    async def redirect(name: str) -> Response:
        return Response(status_code=302, headers={"location": _TARGET})

    return app
