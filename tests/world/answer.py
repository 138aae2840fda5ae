"""An answer that a client got, and what any answer must be."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from doi_proxy.assembly.settings import Settings
from doi_proxy.web.request import below
from doi_proxy.web.request_path import Paths, find_route
from tests.features.openapi.described import Description

_TOKEN: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_FIELD_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_ADMIN: Final = Paths(gated_below=(b"/admin/",))
_BODILESS: Final = (204, 304)
_ONCE: Final = ("access-control-allow-origin", "cache-control", "content-length", "content-type", "location")
#: Fields of the server and of the connection, which no document of the application describes.
_OF_THE_SERVER: Final = ("connection", "date", "server", "transfer-encoding")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes
    #: Virtual seconds from the request to the end of the answer.
    seconds: float = 0.0

    def all(self, name: str) -> list[str]:
        """The values of a header field, one for each line."""
        return [value for key, value in self.fields if key == name]

    def __getitem__(self, name: str) -> str | None:
        """The value of a header field, several lines joined; None if it is absent."""
        return ", ".join(self.all(name)) if self.all(name) else None

    @property
    def location(self) -> str | None:
        """Where a redirect leads."""
        return self["location"]

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8")

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def expires(self) -> float | None:
        """`Expires` in seconds since the epoch."""
        given = self["expires"]
        return None if given is None else parsedate_to_datetime(given).timestamp()

    @property
    def max_age(self) -> int | None:
        """`max-age` of Cache-Control in seconds."""
        found = re.search(r"max-age=([0-9]+)", self["cache-control"] or "")
        return int(found[1]) if found else None


def check_reply(reply: Reply, method: str, path: bytes, *, is_streamed: bool) -> None:
    """Check what holds for every answer: valid fields, the right length, CORS, no traceback, no script."""
    for name, value in reply.fields:
        assert _TOKEN.fullmatch(name), f"{name!r} is not a field name"
        assert _FIELD_VALUE.fullmatch(value), f"{name!r}: {value!r} is not a field value"
    assert not [name for name in _ONCE if len(reply.all(name)) > 1], f"sent twice: {reply.fields}"
    # Pages of other sites may read every answer except those for operators.
    is_status = path in (b"/status", b"/metrics") and method != "OPTIONS"
    is_own = is_status or ("cross-origin-resource-policy", "same-origin") in reply.fields
    is_shared = not is_own and find_route("GET", path, _ADMIN) != "operation"
    assert reply["access-control-allow-origin"] == ("*" if is_shared else None)
    assert reply["access-control-allow-credentials"] is None
    length = reply["content-length"]
    if reply.status in _BODILESS:
        assert length is None and reply.body == b""
    elif method != "HEAD" and not (is_streamed and length is None):
        assert length == str(len(reply.body))
    assert b"Traceback" not in reply.body and b"<script>" not in reply.body.lower()


def check_described(description: Description, reply: Reply, method: str, path: bytes, settings: Settings) -> None:
    """Check that the OpenAPI document describes an answer of a service with these settings."""
    sub_path = urlsplit(settings.public_url or "").path.rstrip("/").encode()
    extra = [name.strip().lower() for name in settings.value("record_headers")]
    fields = {name: value for name, value in reply.fields if name not in _OF_THE_SERVER}
    probes = settings.value("admin_token") is not None
    description.check(method, below(sub_path, path), reply.status, fields, extra=extra, probes=probes)
