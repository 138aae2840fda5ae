"""The OpenAPI document as a check: each answer that a test sees must be in it, with its media type and headers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from doi_proxy.assembly.settings import Settings
from doi_proxy.features.setup.probe_path import PROBE_PATH
from doi_proxy.main import create
from doi_proxy.web.application import Application
from doi_proxy.web.route import STATIC_PATH, Paths, find_route

#: Headers that the document leaves out: OpenAPI has the media type elsewhere, and each answer with a body has a length.
_FRAMING: Final = {"content-type", "content-length"}
#: What any path sends for a method that it does not answer; the admin API reads the token first.
_NO_SUCH_METHOD: Final = (401, 405)
#: It has the media type of the body that it leaves out.
_NOT_MODIFIED: Final = 304
_HANDLES: Final = b"/api/handles/"
_ADMIN: Final = Paths(gated_below=(b"/admin/",))


class Description:
    """The document of an application in which everything is switched on."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    def template(self, method: str, path: bytes) -> str | None:
        """The path of the document for a raw path without sub-path. None for a path that is nothing."""
        paths, text = self.document["paths"], path.decode("latin-1")
        # What crawlers may fetch is not a part of the API.
        if text == "/robots.txt":
            return None
        if path.startswith(b"/admin/") and find_route(method, path, _ADMIN) != "operation":
            return "/{doi}"
        if text in paths and path != b"/{doi}":
            return text
        for prefix, template in _PREFIXES.items():
            if path.startswith(prefix) and template in paths:
                return template
        route = find_route(method, path, Paths(operations=frozenset(name.encode() for name in paths)))
        if route == "api":
            return "/api/handles/{handle}" if path.lower().startswith(_HANDLES) else None
        if route == "which_ra":
            return "/ra/{names}" if path.lower().startswith(b"/ra/") else "/doiRA/{names}"
        return None if route == "operation" else "/openurl" if route == "openurl" else "/" if not path else "/{doi}"

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
        if path.startswith(PROBE_PATH) and not probes:
            return
        template = self.template(method, path)
        if template is None:
            return
        # Methods are case-sensitive (RFC 9110, section 9.1).
        is_known = method.isupper() and method.lower() in self.document["paths"][template]
        if status in _NO_SUCH_METHOD and not is_known:
            return
        found = self.answer(template, method, status)
        assert found is not None, f"{method} {template} does not describe the status {status}"
        kind = headers.get("content-type", "").partition(";")[0]
        if method != "HEAD" and status != _NOT_MODIFIED and kind:
            assert kind in found.get("content", ()), f"{method} {template} {status} does not describe {kind}"
        known = {name.lower() for name in found["headers"]} | _FRAMING | set(extra)
        assert not set(headers) - known, f"{method} {template} {status} does not describe {set(headers) - known}"

    def _resolve(self, part: Any) -> Any:
        while part is not None and "$ref" in part:
            part = _follow(self.document, part["$ref"])
        return part


_PREFIXES: Final = {
    STATIC_PATH: STATIC_PATH.decode() + "{file}",
    PROBE_PATH: PROBE_PATH.decode() + "{rest}",
    b"/admin/entries/": "/admin/entries/{doi}",
    b"/api/proof/": "/api/proof/{name}",
}
_described: list[Description] = []


async def describe() -> Description:
    """The document, which is written once in this process."""
    if not _described:
        on = {"admin_token": "a" * 40, "store_url": "memory:"}
        app = create(Settings(upstream_contact="mailto:library@example.org", **on))
        _described.append(Description(json.loads(await _fetch(app, "/openapi.json"))))
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
