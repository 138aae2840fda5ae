"""What an answer of this service may be: each one that a test sees is compared.

The OpenAPI document says the statuses and the media types of what a program calls; HEAD has those of GET. The headers
that all answers have, and what the server itself answers on every path, stand here and in docs/api.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from doi_proxy.assembly.settings import Settings
from doi_proxy.features.setup.probe import PROBE_PATH
from doi_proxy.main import create
from doi_proxy.web.application import Application
from doi_proxy.web.request_path import Paths, find_route

#: What the server answers on every path: to a request that it cannot read, or not in time, or by a fault of its own.
_OF_THE_SERVER: Final = {400, 408, 431, 500}
#: Headers that answers of every status may have.
_ALWAYS: Final = frozenset(
    "access-control-allow-origin access-control-expose-headers cache-control content-encoding content-length "
    "content-security-policy content-type cross-origin-resource-policy referrer-policy vary x-content-type-options "
    "x-request-id".split()
)
_OF_RECORDS: Final = frozenset({200, 301, 302, 303, 304, 307, 308, 404, 410})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: The statuses of the answers that may have another header.
_SOMETIMES: Final[Mapping[str, frozenset[int]]] = {
    "access-control-allow-headers": frozenset({204}),
    "access-control-allow-methods": frozenset({204}),
    "access-control-max-age": frozenset({204}),
    "age": _OF_RECORDS,
    "allow": frozenset({204, 405}),
    "cache-status": _OF_RECORDS,
    "etag": _OF_RECORDS,
    "expires": _OF_RECORDS,
    "link": _OF_RECORDS,
    "location": _REDIRECTS | {200},
    "proxy-status": frozenset({403, 429, 502, 503, 504}),
    "ratelimit": frozenset({429}),
    "refresh": frozenset({200}),
    "ratelimit-policy": frozenset({429}),
    "retry-after": frozenset({429, 502, 503, 504}),
    "set-cookie": _REDIRECTS,
    "www-authenticate": frozenset({401, 403}),
    "x-accel-buffering": frozenset({200}),
}
#: It has the media type of the body that it leaves out.
_NOT_MODIFIED: Final = 304
_HANDLES: Final = b"/api/handles/"


class Description:
    """The document of an application in which everything is switched on."""

    def __init__(self, document: Mapping[str, Any], paths: Paths) -> None:
        """`paths` are those of the application that are not names."""
        self.document = document
        self._paths = paths

    def template(self, path: bytes) -> str | None:
        """The path of the document for a raw path without sub-path. None for a path that it leaves out."""
        route, text = find_route("GET", path, self._paths), path.decode("latin-1")
        if route in _TEMPLATES:
            return _TEMPLATES[route]
        if route == "api":
            return "/api/handles/{handle}" if path.lower().startswith(_HANDLES) else None
        own = self.document["paths"].keys() - _TEMPLATES.values()
        return next((one for one in own if re.fullmatch(re.sub("{.*}", ".+", one), text)), None)

    def answer(self, template: str, method: str, status: int) -> Any:
        """The answer of the document. None if it has none."""
        operation = self.document["paths"][template].get(method.lower())
        return None if operation is None else self._resolve(operation["responses"].get(str(status)))

    def check(
        self, method: str, path: bytes, status: int, headers: Mapping[str, str], *, extra: Collection[str], probes: bool
    ) -> None:
        """Check one answer. `extra` are headers that the settings allow records to set. Without `probes`, their paths
        are names.
        """
        known = _ALWAYS | {name for name, statuses in _SOMETIMES.items() if status in statuses} | set(extra)
        assert not set(headers) - known, f"{method} {path!r} {status} may not have {set(headers) - known}"
        template = None if path.startswith(PROBE_PATH) else self.template(path)
        operation = "get" if method == "HEAD" else method.lower()
        # Methods are case-sensitive (RFC 9110, section 9.1).
        if template is None or not method.isupper() or operation not in self.document["paths"][template]:
            return
        found = self.answer(template, operation, status)
        kind = headers.get("content-type", "").partition(";")[0]
        if status in _OF_THE_SERVER and (found is None or headers.get("connection") == "close"):
            return
        assert found is not None, f"{method} {template} does not describe the status {status}"
        if method != "HEAD" and status != _NOT_MODIFIED and kind:
            assert kind in found.get("content", ()), f"{method} {template} {status} does not describe {kind}"

    def _resolve(self, part: Any) -> Any:
        while part is not None and "$ref" in part:
            part = _follow(self.document, part["$ref"])
        return part


#: The paths of the document by the routes of names.
_TEMPLATES: Final = {"resolve": "/{doi}", "which_ra": "/ra/{names}", "openurl": "/openurl"}
_described: list[Description] = []


async def describe() -> Description:
    """The document, which is written once in this process."""
    if not _described:
        # The admin API may have been removed; see tools/removable.py.
        on = {"admin_token": "a" * 40} if "admin_token" in Settings.model_fields else {}
        app = create(Settings(upstream_contact="mailto:library@example.org", store_url="memory:", **on))
        _described.append(Description(json.loads(await _fetch(app, "/openapi.json")), app._operations.paths))
    return _described[0]


async def _fetch(app: Application, path: str) -> bytes:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    target = {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    peers = {"client": ("192.0.2.7", 50000), "server": ("127.0.0.1", 8000)}
    protocol = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http"}
    await app({**protocol, **target, **peers, "headers": [(b"host", b"doi.example.org")]}, receive, send)
    return b"".join(message.get("body", b"") for message in sent)


def _follow(document: Any, reference: str) -> Any:
    for key in re.split("/", reference)[1:]:
        document = document[key]
    return document
