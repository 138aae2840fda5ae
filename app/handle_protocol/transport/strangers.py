"""Limits what is sent to addresses that have not answered yet: a record's site values can name third parties."""

from __future__ import annotations

import asyncio
from typing import Final

from handle_protocol.wire.site_value import Address

#: Addresses that are remembered of each kind. Beyond that, the oldest one that answered is a stranger again, and
#: a new one waits.
_MOST: Final = 10_000


class Strangers:
    """One packet per `interval` seconds goes to an address until it answers. Times are arguments, in seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._answered: dict[Address, None] = {}
        #: When the next packet may be sent, and what is set at the answer to the last one.
        self._waiting: dict[Address, tuple[float, asyncio.Event]] = {}
        #: Until when a port counts as closed: the next packet to its address is sent then.
        self._closed: dict[tuple[Address, int], float] = {}

    def may_send(self, address: Address, packets: int, now: float) -> bool:
        """Whether a message of so many packets may be sent now. If so, it counts as sent."""
        if address in self._answered:
            return True
        next_at, answer = self._waiting.get(address, (now, asyncio.Event()))
        if now < next_at:
            return False
        if len(self._waiting) >= _MOST:
            self._waiting = {waiting_address: wait for waiting_address, wait in self._waiting.items() if now < wait[0]}
        if len(self._waiting) >= _MOST:
            return False
        self._waiting[address] = now + packets * self._interval, answer
        return True

    def record_answer(self, address: Address) -> None:
        """A packet with the request id came back, so messages that wait may be sent."""
        _, answer = self._waiting.pop(address, (0.0, None))
        if answer is not None:
            answer.set()
        if address not in self._answered and len(self._answered) >= _MOST:
            del self._answered[next(iter(self._answered))]
        self._answered[address] = None

    def record_refusal(self, address: Address, port: int, now: float) -> None:
        """The system says that a port is closed. Messages to it that wait, and further ones, need not wait."""
        next_at, answer = self._waiting.get(address, (now, asyncio.Event()))
        if len(self._closed) >= _MOST:
            self._closed = {closed_port: until for closed_port, until in self._closed.items() if now < until}
        if now < next_at and len(self._closed) < _MOST:
            self._closed[address, port] = next_at
            self._waiting[address] = next_at, asyncio.Event()
            answer.set()

    def is_closed(self, address: Address, port: int, now: float) -> bool:
        """Whether a port refused the last packet, and the next one may not be sent yet."""
        return bool(self._closed) and now < self._closed.get((address, port), now)

    async def wait_for_answer(self, address: Address, message: asyncio.Future[bytes], seconds: float) -> None:
        """Wait until the address has answered or refused this message or another one, or so many seconds."""
        _, answer = self._waiting.get(address, (0.0, asyncio.Event()))
        other: asyncio.Future[bool] = asyncio.ensure_future(answer.wait())
        try:
            await asyncio.wait((message, other), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            other.cancel()
