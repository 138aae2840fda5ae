"""uvicorn's HTTP protocol with the express lane in front, an answer without a task where the application has one at
once, and a bound on request heads: all we rely on of its inside.

`http=` takes a protocol class (uvicorn, "HTTP Implementation"). What this one uses beyond asyncio.Protocol is listed
in USED and tested, so that an upgrade which changes it is noticed, and the lane is left out where it is missing.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.web.application import Application
from app.web.express_lane import ExpressLane

log = logging.getLogger(__name__)

#: The longest head of a request, in bytes; uvicorn has no bound of its own with httptools.
MAX_HEAD_BYTES: Final = 65_536
#: What is used of uvicorn's protocol.
USED: Final = (
    "data_received",
    "on_message_begin",
    "on_headers_complete",
    "on_message_complete",
    "_start_asgi_task",
    "send_400_response",
    "timeout_keep_alive_handler",
)
#: Middlewares that a server puts around an application.
_MOST_WRAPPERS: Final = 5
_END: Final = b"\r\n\r\n"
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain;charset=utf-8\r\n"
    b"content-length: 45\r\nconnection: close\r\n\r\nThe request's head is larger than 64 KiB.    "
)


class ExpressProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._application = application_of(self.app)
        self._lane = None if self._application is None else self._application.express
        #: Whether a request has begun to arrive and has not arrived wholly.
        self._arriving = False
        #: Whether the head of a request is being read: only then is it answered at once. What waited for an answer
        #: before it gets a task, or a row of such requests would be answered one inside the other.
        self._reading_head = False
        #: Bytes of a head that has not ended yet.
        self._head_bytes = 0
        self._last_answer = 0.0
        self._dates: tuple[Any, bytes] = (None, b"")

    def data_received(self, data: bytes) -> None:
        """Answer what is plain and whole; hand everything else to uvicorn."""
        if self._lane is not None and not self._arriving and self._is_idle():
            data = self._answered(data, self._lane)
        if not data:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES and self._arriving and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _answered(self, data: bytes, express: ExpressLane) -> bytes:
        """Answer the requests at the beginning of `data` as far as they are plain; what is left of it."""
        while data.startswith((b"GET /", b"HEAD /")):
            end = data.find(_END) + len(_END)
            if end < len(_END):
                break
            request = data[:end] if end < len(data) else data
            answer = express.answer(request, self._default_headers(), self.client[0] if self.client else "")
            if answer is None:
                break
            self._sent(answer)
            data = data[end:]
            if not self._is_idle():
                break
        return data

    def _sent(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.server_state.total_requests += 1
        self._last_answer = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Answer at once where the application can, without a task; else start one."""
        answer = None
        if self._application is not None and app is self.app and self._is_ready(cycle):
            scope: Any = cycle.scope
            answer = self._application.at_once(scope, self._default_headers())
        if answer is None:
            super()._start_asgi_task(cycle, app)
            return
        self.transport.write(answer)
        cycle.response_started = cycle.response_complete = True
        cycle.on_response()

    def leave_shortcuts(self) -> None:
        """Answer by tasks alone from now on: they close the connection where an answer says `connection: close`."""
        self._application = self._lane = None

    def _is_ready(self, cycle: RequestResponseCycle) -> bool:
        """Whether an answer can be written now, and its connection stays open."""
        return (
            self._reading_head and cycle.keep_alive and not self.flow.write_paused and not self.transport.is_closing()
        )

    def _is_idle(self) -> bool:
        """Whether no answer is under way, nothing waits, and the client reads what it is sent."""
        if self.flow.write_paused or self.pipeline or self.transport.is_closing():
            return False
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _default_headers(self) -> bytes:
        headers = self.server_state.default_headers
        if self._dates[0] is not headers:
            self._dates = headers, b"".join([name + b": " + value + b"\r\n" for name, value in headers])
        return self._dates[1]

    def on_message_begin(self) -> None:
        """A request begins to arrive."""
        self._arriving = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head has arrived."""
        self._head_bytes = 0
        if self.parser.get_http_version() == "0.9":
            # A first line without a version: the parser refuses what a callback raises, and uvicorn answers 400.
            raise ValueError("HTTP/0.9 is not spoken here")
        self._reading_head = True
        super().on_headers_complete()
        self._reading_head = False

    def on_message_complete(self) -> None:
        """It has arrived wholly."""
        self._arriving = False
        self._head_bytes = 0
        super().on_message_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that is idle, counted from the lane's last answer too."""
        left = self._last_answer + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()


def application_of(app: Any) -> Application | None:
    """The application, which the server may have wrapped; None where it is another one."""
    for _ in range(_MOST_WRAPPERS):
        if isinstance(app, Application):
            return app
        app = getattr(app, "app", None)
    return None


def protocol_class() -> type[HttpToolsProtocol]:
    """The protocol for uvicorn's option `http`: ours, or uvicorn's own where that is not as we know it."""
    missing = [name for name in USED if not callable(getattr(HttpToolsProtocol, name, None))]
    if not missing:
        return ExpressProtocol
    log.warning("this uvicorn has no %s: requests take the full way, without the express lane", ", ".join(missing))
    return HttpToolsProtocol
