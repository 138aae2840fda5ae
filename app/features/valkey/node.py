"""One Valkey server: its connections, the errors they raise, a pause after a failure, and what is sent to it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from math import inf
from typing import Any, Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.errors import DamagedEntry, StoreError
from app.features.valkey.url import Address

Result = TypeVar("Result")

#: Commands that are sent together, and their result.
Work = Callable[[Redis], Awaitable[Result]]
#: A command and its arguments.
Words = Sequence[str | bytes | float]

#: Seconds after a failure in which the server is not queried. Otherwise an outage would cost each request a timeout.
#: Until the server answers again, one command at a time finds out whether it does.
PAUSE: Final = 0.25
#: What redis calls the files of a connection with TLS.
_TLS_FILES: Final = ("ca_certs", "ca_path", "certfile", "keyfile")
#: Connections of one process. At 40 us a command, they carry more commands than one event loop can send.
_CONNECTIONS: Final = 32


class Redirect(Exception):
    """Another server has the key: the one at `address`, or one that is not known yet. See Servers."""

    def __init__(self, address: Address | None, *, must_ask: bool = False) -> None:
        """With `must_ask`, the key is being moved, and `ask_first` lets the other server answer."""
        super().__init__(f"moved to {address}")
        self.address = address
        self.must_ask = must_ask


class Kind(Enum):
    """What work may do, and what its failure means."""

    #: It changes nothing, and may be done twice. A server that does not answer it is down.
    READ = "read"
    #: It may be done twice. A server that does not answer it may still answer reads.
    WRITE = "write"
    #: It changes something, and is done once. A timeout can mean that this process was slow.
    ONCE = "once"


class Gate:
    """Keeps commands from a server that failed: all for PAUSE seconds, then all but one until one has succeeded."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed_at = -inf
        self._is_open = True
        self._is_trying = False

    @property
    def is_closed(self) -> bool:
        """Whether the next command is refused."""
        # A clock that was set back must not prolong the pause.
        return not self._is_open and (self._is_trying or 0.0 <= self._clock() - self._failed_at < PAUSE)

    def enter(self) -> None:
        """Count a command that is sent, until `leave`."""
        self._is_trying = not self._is_open

    def leave(self) -> None:
        """See `enter`."""
        self._is_trying = False

    def open(self) -> None:
        """The server has answered."""
        self._is_open = True

    def close(self) -> None:
        """The server has failed."""
        self._is_open, self._failed_at = False, self._clock()


class Node:
    """One server. If it fails or is slow, a method raises StoreError after at most twice `timeout`.

    Afterwards it raises immediately for a while; see Gate. An error reply closes no gate, because a server that refuses
    one command answers others. A server that is full, or has lost its replicas, refuses writes and answers reads.
    """

    def __init__(
        self,
        address: Address,
        options: Mapping[str, Any],
        *,
        clock: Callable[[], float],
        timeout: float,
        redirects: bool = False,
    ) -> None:
        """`options` are arguments of a connection. `timeout` limits a connection attempt and each command, in seconds.

        With `redirects`, `call` raises Redirect if another server has the key. No connection is opened yet. Raises
        ValueError or TypeError for an invalid option.
        """
        self.address = address
        self._redirects = redirects
        self._clock = clock
        self._reads, self._writes = Gate(clock), Gate(clock)
        self.last_failure = ""
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        place = {"host": address.host, "port": address.port} if address.port else {"path": address.host}
        pool = BlockingConnectionPool(
            **{
                "connection_class": Connection if address.port else UnixDomainSocketConnection,
                "max_connections": _CONNECTIONS,
                # A caller with one of `_slots` always finds a connection.
                "timeout": None,
                "socket_timeout": timeout,
                "socket_connect_timeout": timeout,
                "retry": Retry(NoBackoff(), 0),
                # No handshake: a connection is ready as soon as it is open.
                "protocol": 2,
                "driver_info": None,
                **place,
                **options,
            }
        )
        # This connection only checks the options. Otherwise a wrong option would fail every command.
        _check(pool.connection_class(**pool.connection_kwargs))
        self._client: Redis = Redis.from_pool(pool)

    async def call(self, work: Work[Result], kind: Kind) -> Result:
        """Do `work`. What may be done twice is, after a timeout."""
        async with self._guard(kind):
            try:
                return await work(self._client)
            except RedisTimeoutError:
                if kind is Kind.ONCE:
                    raise
                # If this process was busy for longer than the timeout, it sees the timeout although the reply is there.
                return await work(self._client)

    async def close(self) -> None:
        """Close the connections."""
        try:
            await self._client.aclose(close_connection_pool=True)
        except Exception as error:
            raise self._failure(error) from error

    @asynccontextmanager
    async def _guard(self, kind: Kind) -> AsyncIterator[None]:
        """Translate errors, and stop querying a failed server."""
        gate = self._reads if kind is Kind.READ else self._writes
        self._refuse_if_closed(gate)
        async with self._slots:
            # The server may have failed while this command waited for a slot.
            self._refuse_if_closed(gate)
            gate.enter()
            try:
                yield
                gate.open()
            except UnicodeEncodeError as error:
                raise StoreError(f"The key cannot be stored: {error}.") from error
            except (AskError, ClusterCrossSlotError, ReadOnlyError) as error:
                raise self._redirect(error) from error
            # Catch everything: an exception missing from a hand-kept list would turn a miss into a failed request.
            except Exception as error:
                self._close_gates(kind, error)
                raise self._failure(error) from error
            finally:
                gate.leave()

    def _close_gates(self, kind: Kind, error: Exception) -> None:
        if isinstance(error, ResponseError):
            return
        is_slow = isinstance(error, RedisTimeoutError)
        if kind is Kind.READ or not is_slow:
            self._reads.close()
        if kind is not Kind.ONCE or not is_slow:
            self._writes.close()

    def _redirect(self, error: ResponseError) -> Exception:
        """A key of another server. MovedError is an AskError."""
        if self._redirects and isinstance(error, ReadOnlyError):
            return Redirect(None)
        if self._redirects and isinstance(error, AskError):
            # An empty host is the one at which this server was reached.
            address = Address(error.host or self.address.host, int(error.port))
            return Redirect(address, must_ask=not isinstance(error, MovedError))
        if isinstance(error, AskError | ClusterCrossSlotError):
            return self._failure(f"it is a node of a cluster; use valkey+cluster://{self.address} as the store URL")
        return self._failure(error)

    def _failure(self, error: Exception | str) -> StoreError:
        self.last_failure = str(error) or type(error).__name__
        if isinstance(error, ResponseError) and is_of_wrong_type(error):
            return DamagedEntry(f"The key on {self.address} has data of another program: {self.last_failure}.")
        return StoreError(f"The store {self.address} failed: {self.last_failure}.")

    def _refuse_if_closed(self, gate: Gate) -> None:
        if gate.is_closed:
            raise StoreError(f"The store {self.address} failed a moment ago: {self.last_failure}")


class Script:
    """A Lua script, which the server keeps under its hash."""

    def __init__(self, text: str) -> None:
        self._text = text
        # The command EVALSHA names a script by this hash. It protects nothing.
        self._hash = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def work(self, keys: Sequence[str], arguments: Sequence[str | bytes | float]) -> Work[Any]:
        """The call of the script. All keys have one hash slot."""

        async def run(client: Redis) -> Any:
            try:
                return await client.execute_command("EVALSHA", self._hash, len(keys), *keys, *arguments)  # type: ignore[no-untyped-call]
            except NoScriptError:
                # A server that was restarted or promoted does not have the script. EVAL keeps it.
                return await client.execute_command("EVAL", self._text, len(keys), *keys, *arguments)  # type: ignore[no-untyped-call]

        return run


def command(*words: str | bytes | float) -> Work[Any]:
    """One command."""

    async def run(client: Redis) -> Any:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call]

    return run


def pipeline(commands: Sequence[Words], *, may_damage: bool = False) -> Work[list[Any]]:
    """Several commands in one round trip. If one fails, so do all.

    With `may_damage`, the reply about a key with data of another program is a DamagedEntry.
    """

    async def run(client: Redis) -> list[Any]:
        async with client.pipeline(transaction=False) as waiting:
            for words in commands:
                waiting.execute_command(*words)
            replies = await waiting.execute(raise_on_error=False)
        return [_read_reply(reply, may_damage) for reply in replies]

    return run


def _read_reply(reply: Any, may_damage: bool) -> Any:
    if not isinstance(reply, Exception):
        return reply
    if may_damage and is_of_wrong_type(reply):
        return DamagedEntry(f"The key has data of another program: {reply}.")
    raise reply


def ask_first(work: Work[Result]) -> Work[Result]:
    """The work after the command ASKING on the same connection. https://valkey.io/topics/cluster-spec/ (ASK)"""

    async def run(client: Redis) -> Result:
        async with client.client() as connection:
            await connection.execute_command("ASKING")  # type: ignore[no-untyped-call]
            return await work(connection)

    return run


def _check(connection: AbstractConnection) -> None:
    """Read the files of TLS. Raises ValueError if one cannot be used."""
    if isinstance(connection, SSLConnection):
        try:
            connection.ssl_context.get()
        except OSError as error:
            files = ", ".join(str(file) for name in _TLS_FILES if (file := getattr(connection.ssl_context, name)))
            raise ValueError(f"a file of its TLS options ({files}) cannot be used: {error}") from error


def is_of_wrong_type(error: Exception) -> bool:
    """Whether the server works and only this key has data of another type. A pipeline puts words before the error."""
    return "WRONGTYPE" in str(error)
