"""Answers requests of the native protocol as the HTTP API answers its own: the same cache, limits and truth.

Trouble is never "handle not found". Records are not changed here, so every other operation is refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from doi_names.errors import NotUTF8
from doi_names.name import HandleName
from doi_names.prefix_record import without_home
from doi_proxy import errors
from doi_proxy.features.native_listener import messages
from doi_proxy.rationing.accounts import FORGEABLE
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.options import Conditions
from doi_proxy.resolver.resolution import Resolution
from doi_proxy.resolver.resolver import MAX_BYTES_NOW
from doi_proxy.web.client_network import client_of
from doi_proxy.web.conditions import REQUEST_SECONDS
from doi_proxy.web.stage import PreparedRequest, Stages
from handle_protocol.json_wire import to_wire
from handle_protocol.wire.encoding import EncodedValues, encode_values
from handle_protocol.wire.message import ENVELOPE_BYTES, OpCode, OpFlag, ResponseStatus
from handle_protocol.wire.value import Value

log = logging.getLogger(__name__)

#: Values that one turn of the event loop converts. 1,000 take up to 15 ms.
_VALUES_A_TURN: Final = 100
#: The response code for an error, of the first class that fits.
_CODES: Final[tuple[tuple[type[errors.DoiProxyError], int], ...]] = (
    (errors.PrefixDenied, ResponseStatus.NOT_RESPONSIBLE),
    (errors.ShareSpent, ResponseStatus.SERVER_BUSY),
    (errors.TooManyRequests, ResponseStatus.SERVER_BUSY),
    (errors.ClientDenied, ResponseStatus.ACCESS_DENIED),
    (errors.UnreadableName, ResponseStatus.INVALID_HANDLE),
    (errors.DoiProxyError, ResponseStatus.ERROR),
)
#: The route of a native request in the access log.
NATIVE_ROUTE: Final = "native"
#: Where the response code is in an answer: after the envelope and the operation.
_CODE: Final = slice(ENVELOPE_BYTES + 4, ENVELOPE_BYTES + 8)
_NOT_RESPONSIBLE: Final = "This service does not resolve names of this prefix."
_READ_ONLY: Final = "This service resolves names and does nothing else."
_NO_SESSIONS: Final = "This service has no sessions."
_FAULT: Final = "The request failed."


@dataclass(frozen=True, slots=True)
class Peer:
    """A client, and the address and port where it reached this service.

    A sender of UDP can forge its address. Its requests are not charged to the network of that address, which would then
    get fewer answers by HTTP, but to one client for all such senders.
    """

    client: str
    host: str
    port: int
    is_forgeable: bool = False


class Responder:
    """Answers requests. `count` is called with the result of each: see feature.py."""

    def __init__(
        self,
        destinations: Destinations,
        stages: Stages,
        *,
        clock: Callable[[], float],
        count: Callable[[str], None],
    ) -> None:
        self._destinations = destinations
        self._resolver = destinations.resolver
        self._stages = stages
        self._log = stages.log_prepared
        self._clock = clock
        self.count = count
        #: Whether clients reach this service by UDP too.
        self.has_udp = False

    def answer_now(self, request: messages.HandleRequest, peer: Peer) -> bytes | None:
        """The answer, if it takes no task. None if `answer` gives it, which then does not admit the client again."""
        began = 0.0 if self._log is None else time.perf_counter()
        answer = self._answer_now(request, peer)
        if answer is not None and self._log is not None:
            self._write_line(request, peer, answer, began)
        return answer

    def _answer_now(self, request: messages.HandleRequest, peer: Peer) -> bytes | None:
        try:
            self._admit(peer)
            if (refusal := self._refuse(request)) is not None:
                return refusal
            if request.op_code == OpCode.SITE_INFORMATION:
                self.count("answered")
                return messages.write_site(request, peer.host, peer.port, has_udp=self.has_udp, now=self._clock())
            name = _read_name(request)
            if not self._destinations.resolves_here(name):
                return self._write_refusal(request, ResponseStatus.NOT_RESPONSIBLE, _NOT_RESPONSIBLE)
            if request.has(OpFlag.AUTHORITATIVE) or request.has(OpFlag.CERTIFIED):
                return None
            found = self._resolver.resolve_now(name)
            if found is None or len(found.entry.answer.values) > MAX_BYTES_NOW:
                return None
            self._resolver.count_answer(found)
            return self._write(
                request, found, messages.select_requested_values(request, found).derive(messages.encode_record)
            )
        except errors.FAILURES as error:
            return self._write_error(request, errors.as_failure(error))
        except Exception:
            return self._write_fault(request)

    def is_exempt(self, address: str) -> bool:
        """Whether the operator lifts the limits of requests for a client."""
        return self._stages.admission.is_exempt(address)

    async def answer(self, request: messages.HandleRequest, peer: Peer) -> bytes:
        """The answer to a request that `answer_now` did not answer."""
        began = 0.0 if self._log is None else time.perf_counter()
        answer = await self._answer(request, peer)
        if self._log is not None:
            self._write_line(request, peer, answer, began)
        return answer

    def _write_line(self, request: messages.HandleRequest, peer: Peer, answer: bytes, began: float) -> None:
        """Log a request. Its status is the response code of the protocol."""
        if self._log is not None:
            path, code = b"/" + request.filters.handle, int.from_bytes(answer[_CODE], "big")
            line = PreparedRequest("HDL", path, b"", code, len(answer), None, NATIVE_ROUTE)
            self._log(line, peer.client, time.perf_counter() - began)

    async def _answer(self, request: messages.HandleRequest, peer: Peer) -> bytes:
        try:
            found = await self._resolver.resolve(_read_name(request), self._conditions(request, peer))
            if found.failure is not None and request.has(OpFlag.AUTHORITATIVE):
                # The client would take a stale record for the word of a primary server.
                raise found.failure.without_traceback()
            return self._write(request, found, await encode_in_turns(request, found))
        except errors.FAILURES as error:
            return self._write_error(request, errors.as_failure(error))
        except asyncio.CancelledError:
            raise
        except Exception:
            return self._write_fault(request)

    def _admit(self, peer: Peer) -> None:
        """Count a request of a client. Raises ClientDenied and TooManyRequests."""
        if self._stages.count_client is not None:
            self._stages.count_client(FORGEABLE if peer.is_forgeable else peer.client, 1)
        if not self._stages.admission.admits_all:
            self._stages.admission.admit(peer.client, is_forgeable=peer.is_forgeable)

    def _refuse(self, request: messages.HandleRequest) -> bytes | None:
        envelope = request.message.envelope
        if envelope.session_id or envelope.is_encrypted:
            return self._write_refusal(request, ResponseStatus.SESSION_TIMEOUT, _NO_SESSIONS)
        if request.op_code not in (OpCode.RESOLUTION, OpCode.SITE_INFORMATION):
            return self._write_refusal(request, ResponseStatus.OPERATION_DENIED, _READ_ONLY)
        return None

    def _conditions(self, request: messages.HandleRequest, peer: Peer) -> Conditions:
        return Conditions(
            request.has(OpFlag.AUTHORITATIVE),
            request.has(OpFlag.CERTIFIED),
            client=FORGEABLE if peer.is_forgeable else client_of(peer.client),
            admit_bypass=partial(self._stages.admission.charge_bypass, peer.client),
            due=time.monotonic() + REQUEST_SECONDS,
        )

    def _write(self, request: messages.HandleRequest, found: Resolution, values: EncodedValues) -> bytes:
        data = messages.write_record(request, found, values, self._clock())
        self.count("answered")
        return data

    def _write_refusal(self, request: messages.HandleRequest, code: int, text: str) -> bytes:
        self.count("refused")
        return messages.write_refusal(request, code, text, self._clock())

    def _write_error(self, request: messages.HandleRequest, error: errors.DoiProxyError) -> bytes:
        code = next(code for kind, code in _CODES if isinstance(error, kind))
        self.count("failed" if isinstance(error, errors.CouldNotVerify) else "refused")
        return messages.write_refusal(request, code, error.message, self._clock())

    def _write_fault(self, request: messages.HandleRequest) -> bytes:
        log.exception("an answer of the native listener failed")
        self.count("failed")
        return messages.write_refusal(request, ResponseStatus.ERROR, _FAULT, self._clock())


async def encode_in_turns(request: messages.HandleRequest, found: Resolution) -> EncodedValues:
    """The values that are requested. Many of them are converted in several turns of the event loop."""
    selected, converted = messages.select_requested_values(request, found).values, list[Value]()
    for start in range(0, len(selected), _VALUES_A_TURN):
        converted += to_wire(selected[start : start + _VALUES_A_TURN])
        if len(found.entry.answer.values) > MAX_BYTES_NOW:
            await asyncio.sleep(0)
    return encode_values(converted)


def _read_name(request: messages.HandleRequest) -> HandleName:
    """The name that a request is about. Raises InvalidName."""
    try:
        text = request.filters.handle.decode()
    except UnicodeDecodeError as error:
        raise NotUTF8("The name is not UTF-8.") from error
    return without_home(HandleName(text))
