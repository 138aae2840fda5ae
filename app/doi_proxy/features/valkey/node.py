"""One Valkey server: its connections, the errors they raise, a pause after a failure, and what is sent to it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from math import inf
from typing import Any, Final, TypeVar

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterError,
    MaxConnectionsError,
    NoScriptError,
    RedisClusterException,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from doi_proxy.errors import DamagedEntry, StoreError


class StoreSlow(StoreError):
    pass


from doi_proxy.features.valkey.clients import CONNECTIONS, ServerClient
from doi_proxy.features.valkey.replies import interpret, read_anything

Result = TypeVar("Result")

#: Commands that are sent together, and their result.
Work = Callable[[ServerClient], Awaitable[Result]]
#: A command and its arguments.
Words = Sequence[str | bytes | float]

#: Seconds after a failure in which the server is not queried. Otherwise an outage would cost each request a timeout.
#: Until the server answers again, one command at a time finds out whether it does.
PAUSE: Final = 1.0
#: The reply to a new connection beyond the server's `maxclients`.
_TOO_MANY_CLIENTS: Final = "max number of clients reached"
_LOGIN: Final = "correct the user and the password in the store URL"
#: Words in the replies of a server that refuses commands, and what to do.
_REMEDIES: Final = (
    ("Authentication required", _LOGIN),
    ("invalid username-password", _LOGIN),
    ("used memory > 'maxmemory'", "raise maxmemory of the server, or set its maxmemory-policy to volatile-lru"),
    ("read only replica", "name the primary, or the Sentinels, in the store URL"),
)


class Access(Enum):
    """What work may do, and what its failure means."""

    #: It changes nothing, and may be done twice. A server that does not answer it is down.
    READ = "read"
    #: It may be done twice. A server that does not answer it may still answer reads.
    WRITE = "write"
    #: It changes something, and is done once. A timeout can mean that this process or the server was slow for a moment.
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

    A server is down at the second timeout in a row: at that of a command that was sent after another one was not
    answered in time, and before any answer. Commands that were sent together can time out together. The first timeout
    of work that is done once raises StoreSlow.
    """

    def __init__(self, name: str, usual: ServerClient, late: ServerClient, *, clock: Callable[[], float]) -> None:
        """`name` is its address in messages. `late` has longer timeouts, and connections of its own."""
        self.name = name
        self._clock = clock
        self._reads, self._writes = CommandPause(clock), CommandPause(clock)
        self._pauses = {
            Access.READ: self._reads,
            Access.WRITE: self._writes,
            Access.ONCE: self._writes,
            Access.LATE: CommandPause(clock),
        }
        self.last_failure = self._last_cause = ""
        #: Whether a command was not answered in time, and none was answered since.
        self._is_in_doubt = False
        #: The clients of each kind of work, and the places on their connections: a caller with a place finds one free.
        places = usual, asyncio.Semaphore(CONNECTIONS)
        self._clients = dict.fromkeys(Access, places) | {Access.LATE: (late, asyncio.Semaphore(CONNECTIONS))}

    async def call(self, work: Work[Result], access: Access) -> Result:
        """Do `work`. What may be done twice is, after a timeout."""
        client, slots = self._clients[access]
        async with self._admit(access, slots):
            try:
                return await work(client)
            except RedisTimeoutError:
                if access is Access.ONCE:
                    raise
                # If this process was busy for longer than the timeout, it sees the timeout although the reply is there.
                return await work(client)

    async def guard(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do what needs no connection. Raises StoreError."""
        try:
            await work()
        except Exception as error:
            raise self._failure(error) from error

    @asynccontextmanager
    async def _admit(self, access: Access, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        """Translate errors, and stop querying a failed server."""
        pause = self._pauses[access]
        self._refuse_in_pause(pause)
        async with slots:
            # The server may have failed while this command waited for a slot.
            self._refuse_in_pause(pause)
            pause.enter()
            was_in_doubt = self._is_in_doubt
            try:
                yield
                pause.end()
                self._is_in_doubt = False
            except UnicodeEncodeError as error:
                raise StoreError(f"The key cannot be stored: {error}.") from error
            # Catch everything: an exception missing from a hand-kept list would turn a miss into a failed request.
            except Exception as error:
                self._note_failure(access, error)
                is_first = access is Access.ONCE and self._is_in_doubt and not was_in_doubt
                raise self._failure(error, StoreSlow if is_first else StoreError) from error
            finally:
                pause.leave()

    def _note_failure(self, access: Access, error: Exception) -> None:
        is_slow = self._is_in_doubt = isinstance(error, RedisTimeoutError)
        if _is_reply(error):
            self._pauses[access].end()
            return
        if access is Access.READ or not is_slow:
            self._reads.begin()
            self._writes.begin()
        if access is not Access.ONCE:
            self._pauses[access].begin()

    def _failure(self, error: Exception, kind: type[StoreError] = StoreError) -> StoreError:
        self.last_failure, self._last_cause = _describe(error), _find_cause(error)
        if isinstance(error, AskError | ClusterCrossSlotError):
            self.last_failure += f"; if it is a node of a cluster, use valkey+cluster://{self.name} as the store URL"
        if isinstance(error, ResponseError) and is_of_wrong_type(error):
            return DamagedEntry(f"The key on {self.name} has data of another program: {self.last_failure}.")
        return kind(f"The store {self.name} failed: {self.last_failure}.", cause=self._last_cause)

    def _refuse_in_pause(self, pause: CommandPause) -> None:
        if pause.is_in_force:
            text = f"The store {self.name} failed a moment ago: {self.last_failure}"
            raise StoreError(text, cause=self._last_cause)


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

        async def run(client: ServerClient) -> Result:
            try:
                return await known(client)
            except NoScriptError:
                # A server that was restarted or promoted does not have the script. EVAL keeps it.
                return await unknown(client)

        return run


def command(*words: str | bytes | float, read: Callable[[Any], Result] = read_anything) -> Work[Result]:
    """One command. Its result is what `read` makes of the reply."""

    async def run(client: ServerClient) -> Result:
        return interpret(read, await client.execute_command(*words))

    return run


def _describe(error: Exception) -> str:
    """The message of an error. That of a cluster says less than its cause, and that of Sentinels has whole clients."""
    if isinstance(error, MasterNotFoundError):
        message, _, failures = str(error).partition(" : ")
        return f"{message}: a Sentinel does not answer" if failures else f"{message}; correct the store URL"
    if isinstance(error, RedisClusterException):
        while (cause := error.__cause__ or error.__context__) is not None and isinstance(cause, Exception):
            error = cause
    text = str(error) or type(error).__name__
    remedy = next((remedy for words, remedy in _REMEDIES if words in text), "")
    return f"{text.rstrip('.')}; {remedy}" if remedy else text


def _is_reply(error: Exception) -> bool:
    """Whether the server has answered with an error. redis takes some of these replies for lost connections.

    A server that has too many clients still answers on the connections that are open.
    """
    replies = (ResponseError, AuthenticationError, BusyLoadingError, ClusterError, MaxConnectionsError)
    return isinstance(error, replies) or _TOO_MANY_CLIENTS in str(error)


def _find_cause(error: Exception) -> str:
    """Why a server failed, as the cause of a StoreError."""
    if isinstance(error, RedisTimeoutError):
        return "store-timeout"
    return "store-refuses" if _is_reply(error) else "store-unreachable"


def is_of_wrong_type(error: Exception) -> bool:
    """Whether the server works and only this key has data of another type."""
    return "WRONGTYPE" in str(error)
