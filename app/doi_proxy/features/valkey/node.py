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
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.valkey.replies import LimitedParser, interpret, read_anything
from doi_proxy.features.valkey.url import Address

Result = TypeVar("Result")

#: Commands that are sent together, and their result.
Work = Callable[[Redis], Awaitable[Result]]
#: A command and its arguments.
Words = Sequence[str | bytes | float]

#: Seconds after a failure in which the server is not queried. Otherwise an outage would cost each request a timeout.
#: Until the server answers again, one command at a time finds out whether it does.
PAUSE: Final = 1.0
#: The reply to a new connection beyond the server's `maxclients`.
_TOO_MANY_CLIENTS: Final = "max number of clients reached"
#: What redis calls the files of a connection with TLS.
_TLS_FILES: Final = ("ca_certs", "ca_path", "certfile", "keyfile")
#: Connections of one process. At 40 us a command, they carry more commands than one event loop can send.
_CONNECTIONS: Final = 32
#: Shortest timeout of a late read, in seconds. On a machine with more work than cores, a reply can take that long.
_LATE_TIMEOUT: Final = 1.0


class Redirect(Exception):
    """Another server has the key: the one at `address`, or one that is not known yet. See Servers."""

    def __init__(self, address: Address | None, *, must_ask: bool = False) -> None:
        """With `must_ask`, the key is being moved, and `ask_first` lets the other server answer."""
        super().__init__(f"moved to {address}")
        self.address = address
        self.must_ask = must_ask


class Access(Enum):
    """What work may do, and what its failure means."""

    #: It changes nothing, and may be done twice. A server that does not answer it is down.
    READ = "read"
    #: It may be done twice. A server that does not answer it may still answer reads.
    WRITE = "write"
    #: It changes something, and is done once. A timeout can mean that this process was slow.
    ONCE = "once"
    #: Like READ, before a request is refused. It has a longer timeout, and is sent while other commands are refused.
    LATE = "late"


class CommandPause:
    """Keeps commands from a server that failed: all for PAUSE seconds, then all but one until one has succeeded."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at = -inf
        self._has_begun = False
        self._is_trying = False

    @property
    def is_in_force(self) -> bool:
        """Whether the next command is refused."""
        # A clock that was set back must not prolong the pause.
        return self._has_begun and (self._is_trying or 0.0 <= self._clock() - self._began_at < PAUSE)

    def enter(self) -> None:
        """Count a command that is sent, until `leave`."""
        self._is_trying = self._has_begun

    def leave(self) -> None:
        """See `enter`."""
        self._is_trying = False

    def begin(self) -> None:
        """The server has failed."""
        self._has_begun, self._began_at = True, self._clock()

    def end(self) -> None:
        """The server has answered."""
        self._has_begun = False


class Node:
    """One server. If it fails or is slow, a method raises StoreError after at most twice its timeout.

    Afterwards it raises immediately for a while; see CommandPause. An error reply begins no pause, because a server
    that refuses one command answers others: if it is full, or has lost its replicas, it refuses writes alone.
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

        A late read has at least _LATE_TIMEOUT, and connections of its own: on others, it would wait behind commands
        that time out. With `redirects`, `call` raises Redirect if another server has the key. No connection is opened
        yet. Raises ValueError or TypeError for an invalid option.
        """
        self.address = address
        self._redirects = redirects
        self._clock = clock
        self._reads, self._writes = CommandPause(clock), CommandPause(clock)
        self._pauses = {
            Access.READ: self._reads,
            Access.WRITE: self._writes,
            Access.ONCE: self._writes,
            Access.LATE: CommandPause(clock),
        }
        self.last_failure = ""
        usual = Redis.from_pool(_open_pool(address, options, timeout)), asyncio.Semaphore(_CONNECTIONS)
        patient = _open_pool(address, options, max(timeout, _LATE_TIMEOUT))
        late = Redis.from_pool(patient), asyncio.Semaphore(_CONNECTIONS)
        #: The connections of each kind of work, and the places on them.
        self._clients = dict.fromkeys(Access, usual) | {Access.LATE: late}

    async def call(self, work: Work[Result], access: Access) -> Result:
        """Do `work`. What may be done twice is, after a timeout."""
        client, slots = self._clients[access]
        async with self._guard(access, slots):
            try:
                return await work(client)
            except RedisTimeoutError:
                if access is Access.ONCE:
                    raise
                # If this process was busy for longer than the timeout, it sees the timeout although the reply is there.
                return await work(client)

    async def close(self) -> None:
        """Close the connections."""
        try:
            for access in (Access.READ, Access.LATE):
                await self._clients[access][0].aclose(close_connection_pool=True)
        except Exception as error:
            raise self._failure(error) from error

    @asynccontextmanager
    async def _guard(self, access: Access, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        """Translate errors, and stop querying a failed server."""
        pause = self._pauses[access]
        self._refuse_in_pause(pause)
        async with slots:
            # The server may have failed while this command waited for a slot.
            self._refuse_in_pause(pause)
            pause.enter()
            try:
                yield
                pause.end()
            except UnicodeEncodeError as error:
                raise StoreError(f"The key cannot be stored: {error}.") from error
            except (AskError, ClusterCrossSlotError, ReadOnlyError) as error:
                raise self._redirect(error) from error
            # Catch everything: an exception missing from a hand-kept list would turn a miss into a failed request.
            except Exception as error:
                self._note_failure(access, error)
                raise self._failure(error) from error
            finally:
                pause.leave()

    def _note_failure(self, access: Access, error: Exception) -> None:
        is_slow = isinstance(error, RedisTimeoutError)
        if _is_reply(error):
            self._pauses[access].end()
            return
        if access is Access.READ or not is_slow:
            self._reads.begin()
            self._writes.begin()
        if access is not Access.ONCE:
            self._pauses[access].begin()

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

    def _refuse_in_pause(self, pause: CommandPause) -> None:
        if pause.is_in_force:
            raise StoreError(f"The store {self.address} failed a moment ago: {self.last_failure}")


class Script:
    """A Lua script, which the server keeps under its hash."""

    def __init__(self, text: str) -> None:
        self._text = text
        # The command EVALSHA names a script by this hash. It protects nothing.
        self._hash = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def work(
        self, keys: Sequence[str], arguments: Words, read: Callable[[Any], Result] = read_anything
    ) -> Work[Result]:
        """The call of the script. All keys have one hash slot."""
        rest = (len(keys), *keys, *arguments)
        known, unknown = command("EVALSHA", self._hash, *rest, read=read), command("EVAL", self._text, *rest, read=read)

        async def run(client: Redis) -> Result:
            try:
                return await known(client)
            except NoScriptError:
                # A server that was restarted or promoted does not have the script. EVAL keeps it.
                return await unknown(client)

        return run


def command(*words: str | bytes | float, read: Callable[[Any], Result] = read_anything) -> Work[Result]:
    """One command. Its result is what `read` makes of the reply."""

    async def run(client: Redis) -> Result:
        return interpret(read, await client.execute_command(*words))  # type: ignore[no-untyped-call]

    return run


def pipeline(commands: Sequence[Words], read: Callable[[Any], Result]) -> Work[list[Result]]:
    """Several commands in one round trip, each with a result of `read`. If one fails, so do all."""

    async def run(client: Redis) -> list[Result]:
        async with client.pipeline(transaction=False) as waiting:
            for words in commands:
                waiting.execute_command(*words)
            return [interpret(read, reply) for reply in await waiting.execute()]

    return run


def ask_first(work: Work[Result]) -> Work[Result]:
    """The work after the command ASKING on the same connection. https://valkey.io/topics/cluster-spec/ (ASK)"""

    async def run(client: Redis) -> Result:
        async with client.client() as connection:
            await connection.execute_command("ASKING")  # type: ignore[no-untyped-call]
            return await work(connection)

    return run


def _open_pool(address: Address, options: Mapping[str, Any], timeout: float) -> BlockingConnectionPool:
    """Connections that are opened when they are needed. Raises ValueError or TypeError for an invalid option."""
    place = {"host": address.host, "port": address.port} if address.port else {"path": address.host}
    pool = BlockingConnectionPool(
        **{
            "connection_class": Connection if address.port else UnixDomainSocketConnection,
            "max_connections": _CONNECTIONS,
            # A caller with one of as many slots always finds a connection.
            "timeout": None,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
            # No handshake: a connection is ready as soon as it is open.
            "protocol": 2,
            "driver_info": None,
            "parser_class": LimitedParser,
            **place,
            **options,
        }
    )
    # This connection only checks the options. Otherwise a wrong option would fail every command.
    _check(pool.connection_class(**pool.connection_kwargs))
    return pool


def _check(connection: AbstractConnection) -> None:
    """Read the files of TLS. Raises ValueError if one cannot be used."""
    if isinstance(connection, SSLConnection):
        try:
            connection.ssl_context.get()
        except OSError as error:
            files = ", ".join(str(file) for name in _TLS_FILES if (file := getattr(connection.ssl_context, name)))
            raise ValueError(f"a file of its TLS options ({files}) cannot be used: {error}") from error


def _is_reply(error: Exception) -> bool:
    """Whether the server has answered with an error. redis takes some of these replies for lost connections.

    A server that has too many clients still answers on the connections that are open.
    """
    replies = (ResponseError, AuthenticationError, BusyLoadingError)
    return isinstance(error, replies) or _TOO_MANY_CLIENTS in str(error)


def is_of_wrong_type(error: Exception) -> bool:
    """Whether the server works and only this key has data of another type. A pipeline puts words before the error."""
    return "WRONGTYPE" in str(error)
