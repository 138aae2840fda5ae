"""One Valkey server: its connections, the errors they raise, a pause after a failure, and what is sent to it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
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
PAUSE: Final = 1.0
#: What a node of a cluster refuses for the moment. It answers quickly, so nothing is gained by a pause.
_QUICK_REFUSALS: Final = (ClusterDownError, TryAgainError)
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


class Node:
    """One server. If it fails or is slow, a method raises StoreError after at most twice `timeout`.

    For PAUSE seconds afterwards, it raises immediately.
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
        self._failed_at = -inf
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

    async def call(self, work: Work[Result], *, repeat: bool = False) -> Result:
        """Do `work`. With `repeat`, it may be done twice, and a second timeout starts a pause.

        A timeout of work that is done once starts no pause: it can mean that this process was slow.
        """
        async with self._guard(decides=repeat):
            try:
                return await work(self._client)
            except RedisTimeoutError:
                if not repeat:
                    raise
                # If this process was busy for longer than the timeout, it sees the timeout although the reply is there.
                return await work(self._client)

    async def close(self) -> None:
        """Close the connections."""
        async with self._guard(paused=False):
            await self._client.aclose(close_connection_pool=True)

    @property
    def is_paused(self) -> bool:
        """Whether the server failed less than PAUSE seconds ago."""
        # A clock that was set back must not prolong the pause.
        return 0.0 <= self._clock() - self._failed_at < PAUSE

    @asynccontextmanager
    async def _guard(self, *, paused: bool = True, decides: bool = False) -> AsyncIterator[None]:
        """Translate errors, and stop querying a failed server. A timeout counts as a failure only if `decides`."""
        if paused:
            self._refuse_while_paused()
        async with self._slots:
            if paused:
                # The server may have failed while this command waited for a slot.
                self._refuse_while_paused()
            try:
                yield
            except UnicodeEncodeError as error:
                raise StoreError(f"The key cannot be stored: {error}.") from error
            except (AskError, ClusterCrossSlotError, ReadOnlyError) as error:
                raise self._redirect(error) from error
            # Catch everything: an exception missing from a hand-kept list would turn a miss into a failed request.
            except Exception as error:
                self.last_failure = str(error) or type(error).__name__
                if _is_about_one_key(error):
                    raise DamagedEntry(
                        f"The key on {self.address} has data of another program: {self.last_failure}."
                    ) from error
                is_slow = isinstance(error, RedisTimeoutError) and not decides
                raise self._fail(starts_pause=not is_slow and not isinstance(error, _QUICK_REFUSALS)) from error

    def _redirect(self, error: ResponseError) -> Exception:
        """A key of another server. MovedError is an AskError."""
        if self._redirects and isinstance(error, ReadOnlyError):
            return Redirect(None)
        if self._redirects and isinstance(error, AskError):
            # An empty host is the one at which this server was reached.
            address = Address(error.host or self.address.host, int(error.port))
            return Redirect(address, must_ask=not isinstance(error, MovedError))
        self.last_failure = str(error)
        if isinstance(error, AskError | ClusterCrossSlotError):
            self.last_failure = f"it is a node of a cluster; use valkey+cluster://{self.address} as the store URL"
        return self._fail(starts_pause=True)

    def _fail(self, *, starts_pause: bool) -> StoreError:
        if starts_pause:
            self._failed_at = self._clock()
        return StoreError(f"The store {self.address} failed: {self.last_failure}.")

    def _refuse_while_paused(self) -> None:
        if self.is_paused:
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


def pipeline(commands: Sequence[Words]) -> Work[list[Any]]:
    """Several commands in one round trip. If one fails, so do all."""

    async def run(client: Redis) -> list[Any]:
        async with client.pipeline(transaction=False) as waiting:
            for words in commands:
                waiting.execute_command(*words)
            return await waiting.execute()

    return run


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


def _is_about_one_key(error: Exception) -> bool:
    """Whether the server works and only this key has another type."""
    return isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")
