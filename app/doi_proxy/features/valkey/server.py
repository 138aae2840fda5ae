"""The server of a store, or its servers: what is sent to them, the errors, and a pause after a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    ClusterError,
    InvalidResponse,
    MaxConnectionsError,
    RedisClusterException,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.client import CONNECTIONS, close_redis, open_redis

log = logging.getLogger(__name__)

Result = TypeVar("Result")

#: A command and its arguments. The first argument is the key, if the command has one.
Words = Sequence[str | bytes | int]

#: Seconds after a failure in which nothing is sent. Otherwise an outage would cost each request a timeout. Then one
#: command at a time finds out whether the server answers again.
PAUSE: Final = 1.0
#: Parts of the errors of a command on a key that has data of another program: of another type, a stream that has no
#: further id, a text in place of a number, or more than a reply may have. The key is deleted. Otherwise all that needs
#: it would fail for ever.
_FOREIGN: Final = ("WRONGTYPE", "last possible ID", "not an integer", "reply is too long")
#: Commands without a key.
_WITHOUT_KEY: Final = ("DBSIZE", "INFO", "SCAN")
_LOGIN: Final = "correct the user and the password in the store URL"
#: Words in the replies of a server that refuses commands, and what to do.
_REMEDIES: Final = (
    ("Authentication required", _LOGIN),
    ("invalid username-password", _LOGIN),
    ("used memory > 'maxmemory'", "raise maxmemory of the server, or set its maxmemory-policy to volatile-lru"),
    ("read only replica", "name the primary, or the Sentinels, in the store URL"),
)


class WrongShape(ResponseError):
    """The server answers, but not this command. Like every error reply, that is not an outage."""


class ValkeyServer:
    """One server, the primary that Sentinels name, or a cluster. If it fails or is slow, a method raises StoreError.

    After that, each method raises immediately for PAUSE seconds. An error reply begins no pause, because a server that
    refuses one command answers others: if it is full, or has lost its replicas, it refuses writes alone.
    """

    def __init__(self, url: str, *, clock: Callable[[], float], timeout: float) -> None:
        """See ValkeyStore."""
        self._client, self._name = open_redis(url, timeout)
        self._clock = clock
        #: A caller with a place finds a free connection.
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._failed_at: float | None = None
        self._is_trying = False
        self._failure = self._cause = ""

    @property
    def label(self) -> str:
        """What an operator calls the store."""
        return f"Valkey {self._name}" if " " in self._name else f"Valkey server {self._name}"

    async def primaries(self) -> list[ClusterNode | None]:
        """The primaries of a cluster, by name. None stands for a server that has every key."""
        if not isinstance(cluster := self._client, RedisCluster):
            return [None]
        async with self._admit():
            await cluster.initialize()
            nodes = sorted((node.name, node) for node in cluster.get_primaries())
            return [node for _, node in nodes]

    async def call(
        self, *words: str | bytes | int, read: Callable[[Any], Result], at: ClusterNode | None = None
    ) -> Result:
        """Send one command, and return what `read` makes of the reply. `at` is the primary of a command without key."""
        async with self._admit():
            return _interpret(read, await self._execute(words, at))

    async def call_all(self, *commands: Words, read: Callable[[list[Any]], Result]) -> Result:
        """Send commands, each with one key, in this order, and return what `read` makes of their replies.

        They are one round trip, but in a cluster, where their keys have different servers.
        """
        async with self._admit():
            if isinstance(self._client, RedisCluster):
                return _interpret(read, [await self._execute(words) for words in commands])
            async with self._client.pipeline(transaction=False) as pipeline:
                for words in commands:
                    pipeline.execute_command(*words)
                replies = await pipeline.execute(raise_on_error=False)
            for number, (words, reply) in enumerate(zip(commands, replies, strict=True)):
                if isinstance(reply, ResponseError):
                    replies[number] = await self._execute_again(words, reply)
            return _interpret(read, replies)

    async def close(self) -> None:
        """Close the connections. Raises StoreError."""
        try:
            await close_redis(self._client)
        except Exception as error:
            raise self._translate(error) from error

    async def _execute(self, words: Words, at: ClusterNode | None = None) -> Any:
        options = {} if at is None else {"target_nodes": at}
        try:
            return await self._client.execute_command(*words, **options)
        except (ResponseError, InvalidResponse) as error:
            return await self._execute_again(words, error)

    async def _execute_again(self, words: Words, error: Exception) -> Any:
        """Delete the key if it has data of another program, and repeat the command."""
        if words[0] in _WITHOUT_KEY or not any(part in str(error) for part in _FOREIGN):
            raise error
        log.warning("The key %s on %s has data of another program, and is deleted.", words[1], self._name)
        await self._client.execute_command("DEL", words[1])
        return await self._client.execute_command(*words)

    @asynccontextmanager
    async def _admit(self) -> AsyncIterator[None]:
        """Translate errors, and send nothing to a server that failed a moment ago."""
        self._refuse_in_pause()
        async with self._places:
            # The server may have failed while this command waited for a place.
            self._refuse_in_pause()
            self._is_trying = self._failed_at is not None
            try:
                yield
                self._failed_at = None
            except UnicodeEncodeError as error:
                raise StoreError(f"The key cannot be stored: {error}.") from error
            # Catch everything: an exception missing from a hand-kept list would turn a miss into a failed request.
            except Exception as error:
                self._failed_at = None if _is_reply(error) else self._clock()
                raise self._translate(error) from error
            finally:
                self._is_trying = False

    def _refuse_in_pause(self) -> None:
        # A clock that was set back must not prolong the pause.
        if self._failed_at is not None and (self._is_trying or 0.0 <= self._clock() - self._failed_at < PAUSE):
            raise StoreError(f"The store {self._name} failed a moment ago: {self._failure}", cause=self._cause)

    def _translate(self, error: Exception) -> StoreError:
        self._failure, self._cause = _describe(error), _find_cause(error)
        if isinstance(error, AskError | ClusterCrossSlotError):
            self._failure += f"; if it is a node of a cluster, use valkey+cluster://{self._name} as the store URL"
        return StoreError(f"The store {self._name} failed: {self._failure}.", cause=self._cause)


def _interpret(read: Callable[[Any], Result], reply: Any) -> Result:
    """What `read` makes of a reply. Raises WrongShape."""
    try:
        return read(reply)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise WrongShape(f"its reply to this command has another shape: {str(reply)[:80]}") from error


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
    return text.rstrip(".") + (f"; {remedy}" if remedy else "")


def _is_reply(error: Exception) -> bool:
    """Whether the server has answered with an error. redis takes some of these replies for lost connections.

    A server that has too many clients still answers on the connections that are open. The nodes of a cluster that is
    down refuse everything, and redis-py waits before it raises that.
    """
    if isinstance(error, ClusterDownError):
        return False
    replies = (ResponseError, AuthenticationError, BusyLoadingError, ClusterError, MaxConnectionsError)
    # The reply to a new connection beyond the server's `maxclients`.
    return isinstance(error, replies) or "max number of clients reached" in str(error)


def _find_cause(error: Exception) -> str:
    """Why a server failed, as the cause of a StoreError."""
    if isinstance(error, RedisTimeoutError):
        return "store-timeout"
    return "store-refuses" if _is_reply(error) or isinstance(error, ClusterDownError) else "store-unreachable"
