"""An HTTP request: the ASGI scope, of which each part is read when it is needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from doi_names.name import HandleName
from doi_names.presentation import url_path
from doi_proxy.errors import InvalidParameter, RequestTooLarge
from doi_proxy.web import request_path
from doi_proxy.web.freshness import CACHE_CONTROL
from doi_proxy.web.languages import choose_language
from doi_proxy.web.media_types import JSON
from doi_proxy.web.request_path import Header
from doi_proxy.web.responses import Message, Receive, Scope, Send

_BOUNDARY: Final = re.compile(r'multipart/form-data\s*;.*boundary="?([^\s";,]{1,70})', re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r';\s*name="([^"]{0,100})"', re.IGNORECASE)
_FILE_NAME: Final = re.compile(r';\s*filename="([^"]{0,400})"', re.IGNORECASE)
_MAX_HEAD_BYTES: Final = 2_048


@dataclass(frozen=True, slots=True)
class FormField:
    """The value of a field, and the name of the file that it is, "" for a text."""

    data: bytes
    file_name: str = ""


def read_multipart(content_type: str, body: bytearray) -> dict[str, FormField] | None:
    """The fields before the last delimiter, the first of each name. None for a body of another type."""
    found = _BOUNDARY.match(content_type.strip())
    if found is None:
        return None
    fields: dict[str, FormField] = {}
    delimiter = b"\r\n--" + found[1].encode("utf-8", "replace")
    # Fields that are read. A form of ours has two.
    first, *parts = body.split(delimiter, 8)
    # The first delimiter may have no line before it. A copy of the body with one takes milliseconds.
    if first.startswith(delimiter[2:]):
        parts.insert(0, first[len(delimiter) - 2 :])
    for part in parts[:-1]:
        head, blank, data = part.partition(b"\r\n\r\n")
        if not blank or len(head) > _MAX_HEAD_BYTES:
            continue
        disposition = head.decode("utf-8", "replace")
        name, file_name = _NAME.search(disposition), _FILE_NAME.search(disposition)
        if name is not None:
            fields.setdefault(name[1], FormField(bytes(data), file_name[1] if file_name else ""))
    return fields


Fields = Mapping[bytes, bytes]  # the headers of a request by name
#: Limit of a form or JSON body, which contains a name and a few parameters.
MAX_BODY_BYTES: Final = 65_536
#: A host with an optional port (RFC 9110, section 7.2), without user names and percent signs.
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,255}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


class Request:
    """One HTTP request. `path` is raw: percent-encoded, without the query, without the resolver's sub-path."""

    __slots__ = ("_receive", "due", "fields", "method", "path", "public_url", "query", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, public_url: str | None, sub_path: bytes, fields: Fields | None = None
    ) -> None:
        # No parameter is keyword-only: Python 3.11 takes 1,400 instructions more to pass two to a class.
        self.scope = scope
        self.method: str = scope["method"]
        self.query: bytes = scope["query_string"]
        # Servers that do not set raw_path lose the difference between "/" and "%2F": uvicorn sets it.
        path: bytes = scope["raw_path"]
        self.path = below(sub_path, path) if sub_path else path
        self._receive = receive
        self.fields = fields  # None until they are needed
        self.public_url = public_url
        self.due: float | None = None  # when the answer is due, by the event loop's clock

    @property
    def head_only(self) -> bool:
        """Whether the client requests only the head of the answer."""
        return self.method == "HEAD"

    def header(self, name: bytes) -> str | None:
        """A header's value, several joined by a comma (RFC 9110, section 5.3); None where it is absent."""
        if self.fields is None:
            self.fields = _joined(self.scope["headers"])
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def client_address(self) -> str:
        """The address of the client, "" if it is unknown."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    def language(self, available: Sequence[str]) -> str:
        """The language of a page for this request."""
        return choose_language(self.header(b"accept-language"), available)

    @property
    def base_url(self) -> str:
        """This resolver's own URL, without a slash at the end: `public_url`, else the scheme and Host of the request.

        A client can send any Host. Its own answer then names that host, and caches keep answers apart by host.
        """
        if self.public_url is not None:
            return self.public_url
        host = self.header(b"host") or ""
        if not _HOST.fullmatch(host):
            server = self.scope.get("server") or ("localhost", None)
            host = server[0] if server[1] is None else f"{server[0]}:{server[1]}"
        return f"{self.scope.get('scheme', 'http')}://{host}"

    def url_of(self, name: HandleName) -> str:
        """This resolver's own URL of a name."""
        path = url_path(name)
        # A handle may begin with a slash, and "//" would begin a host (RFC 3986, section 4.2).
        return f"{self.base_url}/%2F{path[1:]}" if path.startswith("/") else f"{self.base_url}/{path}"

    async def form(self) -> request_path.Parameters:
        """The parameters in the body of a POST: of a form, or the members of a JSON object."""
        content_type = self.header(b"content-type") or ""
        media_type = media_type_of(content_type)
        body = await self.body()
        if media_type == JSON and body:
            return _read_json(body)
        if media_type in ("application/x-www-form-urlencoded", "") and body:
            return request_path.read_form_body(body)
        fields = read_multipart(content_type, bytearray(body)) if media_type == "multipart/form-data" else {}
        if fields is None:
            raise InvalidParameter("The form cannot be read: its Content-Type has no boundary.")
        return request_path.Parameters(
            tuple((name, field.data.decode("utf-8", "replace")) for name, field in fields.items())
        )

    async def body(self, most: int = MAX_BODY_BYTES) -> bytes:
        """The body, of at most so many bytes. Raises RequestTooLarge."""
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return bytes(body)
            body += message.get("body", b"")
            if len(body) > most:
                raise RequestTooLarge(f"The request's body is larger than {most} bytes.")
            if not message.get("more_body", False):
                return bytes(body)


def media_type_of(content_type: str | None) -> str:
    """The media type without its parameters, in lower case. Empty without a Content-Type (RFC 9110, section 8.3)."""
    return (content_type or "").partition(";")[0].strip().lower()


def below(sub_path: bytes, path: bytes) -> bytes:
    """A raw path without the resolver's sub-path."""
    return path[len(sub_path) :] if path == sub_path or path.startswith(sub_path + b"/") else path


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    found = dict(headers)
    if len(found) < len(headers):
        several: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            several.setdefault(name, []).append(value)
        found = {name: b", ".join(values) for name, values in several.items()}
    return found


def _read_json(body: bytes) -> request_path.Parameters:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidParameter('The request\'s body is not JSON; send an object such as {"type": "URL"}.') from error
    if not isinstance(document, dict):
        raise InvalidParameter('The request\'s body must be a JSON object such as {"type": "URL"}.')
    pairs = [
        (str(name), item)
        for name, value in document.items()
        for item in (value if isinstance(value, list) else [value])
    ]
    return (
        request_path.Parameters(tuple((request_path.parameter_name(name), _as_text(item)) for name, item in pairs))
        if pairs
        else request_path.NO_PARAMETERS
    )


def _as_text(item: object) -> str:
    return str(item).lower() if isinstance(item, bool) else "" if item is None else str(item)


REQUEST_ID: Final = b"x-request-id"
#: A request ID that is accepted from a client. Any other is replaced.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_EXPOSED: Final[Header] = (b"access-control-expose-headers", b"X-Request-ID")


def sent_identifier(request: Request) -> str | None:
    """The request ID that the client sent, None if it sent none that is accepted."""
    sent = request.header(REQUEST_ID)
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else None


def echo_identifier(request: Request, send: Send) -> Send:
    """Wrap `send`: it adds the request ID of the client to the answer. For a service without an access log."""
    identifier = sent_identifier(request)
    if identifier is None:
        return send

    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            message = {**message, "headers": [*headers, *id_headers(answer_identifier(request, identifier, headers))]}
        await send(message)

    return send_with_id


def answer_identifier(request: Request, identifier: str | None, headers: Iterable[Header]) -> str | None:
    """The request ID that an answer with these headers has. None if it has none.

    A shared cache would send the ID of one client to the others, so an answer that it may store (RFC 9111, section 3)
    has no ID of a client.
    """
    if identifier is None or identifier != request.header(REQUEST_ID):
        return identifier
    caching = next((value for name, value in headers if name == CACHE_CONTROL), b"")
    return identifier if b"private" in caching or b"no-store" in caching else None


def id_headers(identifier: str | None) -> tuple[Header, ...]:
    """The headers of an answer with a request ID; none without one."""
    if identifier is None:
        return ()
    return ((REQUEST_ID, identifier.encode()), _EXPOSED)
