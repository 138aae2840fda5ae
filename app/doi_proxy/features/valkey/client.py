"""The client of a store URL, of a server, of the primary that Sentinels name, or of a cluster, and its failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis._parsers import _AsyncRESP2Parser
from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel, SentinelConnectionPool, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import NoBackoff
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
from doi_proxy.system.eager import in_task

_MAX_BYTES: Final = 16 * 1024 * 1024
_TEXT: Final = b"$"


class LimitedParser(_AsyncRESP2Parser):
    """Refuses a reply by the lengths that it announces, before it is read.

    hiredis makes room for all elements at once: `*2000000000` took 6 s of processor time in one turn of the event loop.
    A look-up takes 191 us with this parser, and 184 us with hiredis.
    """

    async def read_response(self, disable_decoding: bool = False) -> Any:
        """See the base class. Raises InvalidResponse."""
        # Elements of all arrays of one reply, and bytes of all its texts.
        self._elements_left, self._bytes_left = 100_000, _MAX_BYTES
        return await super().read_response(disable_decoding)

    async def _readline(self) -> bytes:
        line: bytes = await super()._readline()
        kind = line[:1]
        if kind == b"*":
            self._elements_left -= int(line[1:])
        elif kind == _TEXT:
            self._bytes_left -= int(line[1:])
        if self._elements_left < 0 or self._bytes_left < 0:
            raise InvalidResponse(f"Its reply is too long: {line[:20]!r}")
        return line


Client = Redis | RedisCluster
#: Host and port.
Address = tuple[str, int]

#: Connections to one server. At 40 us a command, they carry more commands than one event loop can send.
CONNECTIONS: Final = 32
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
#: The schemes of ours with TLS.
_WITH_TLS: Final = ("rediss", "valkeys")
#: What redis calls the files of a connection with TLS.
_TLS_FILES: Final = ("ca_certs", "ca_path", "certfile", "keyfile")


def open_redis(url: str, timeout: float) -> tuple[Client, str]:
    """The client of a store, and its name in messages. No connection is opened yet.

    `timeout` limits a connection attempt and each command, in seconds. Raises ValueError or TypeError for an invalid
    URL, without the password in the message.
    """
    parts = urlsplit(url)
    spelling, _, kind = parts.scheme.partition("+")
    parts = parts._replace(scheme="rediss" if spelling in _WITH_TLS else "redis")
    options = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        # A connection that the server has closed since its last command, or that leads to a former primary.
        "retry": Retry(NoBackoff(), 1),
        # No handshake: a connection is ready as soon as it is open.
        "protocol": 2,
        "driver_info": None,
    }
    match kind:
        case "unix":
            return _connect_socket(parts, options)
        case "cluster":
            return _connect_cluster(parts, options)
        case "sentinel":
            return _connect_primary(parts, options)
        case _:
            return _connect_server(parts, options)


async def close_redis(client: Client) -> None:
    """Close the connections of a client."""
    await client.aclose()
    if isinstance(client, Redis) and isinstance(pool := client.connection_pool, SentinelConnectionPool):
        await pool.sentinel_manager.aclose()


def _connect_socket(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Client, str]:
    path = unquote(parts.path)
    if parts.netloc.rpartition("@")[2] or not path.startswith("/") or path.endswith("/"):
        raise ValueError("it needs three slashes and the path of a socket, as in valkey+unix:///run/valkey/valkey.sock")
    return _open(parts._replace(scheme="unix").geturl(), options), path


def _connect_server(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Client, str]:
    address = _read_address(parts.netloc.rpartition("@")[2], _PORT)
    if (path := parts.path.strip("/")) and not path.isdigit():
        raise ValueError("its path is not a database number")
    return _open(parts.geturl(), options), _describe([address])


def _open(url: str, options: Mapping[str, Any]) -> Redis:
    client = Redis.from_url(url, max_connections=CONNECTIONS, parser_class=LimitedParser, **options)
    _check(client.connection_pool)
    return client


def _connect_primary(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Client, str]:
    addresses = _read_addresses(parts, _SENTINEL_PORT)
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not (database.isdigit() or not database):
        raise ValueError("it needs the name of the primary, as in valkey+sentinel://host1,host2/NAME")
    user, at, _ = parts.netloc.rpartition("@")
    given: dict[str, Any] = dict(parse_url(f"{parts.scheme}://{user}{at}/{database}?{parts.query}"))
    of_sentinels = {name: given.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    common = {**options, "max_connections": CONNECTIONS, "parser_class": LimitedParser}
    # The Sentinels are queried in turn, so none is queried twice.
    seed = {**common, **given, **of_sentinels, "db": 0, "retry": Retry(NoBackoff(), 0)}
    manager = Sentinel([])  # type: ignore[no-untyped-call]
    for host, port in addresses:
        manager.sentinels.append(Redis.from_pool(ConnectionPool(host=host, port=port, **seed)))
    _check(manager.sentinels[0].connection_pool)
    is_tls = given.pop("connection_class", None) is SSLConnection
    client: Redis = manager.master_for(unquote(service), ssl=is_tls, **common, **given)
    return client, f"primary {unquote(service)!r} of {_describe(addresses)}"


def _connect_cluster(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Client, str]:
    addresses = _read_addresses(parts, _PORT)
    if parts.path.strip("/") not in ("", "0") or parse_qs(parts.query).get("db", ["0"]) != ["0"]:
        raise ValueError("a cluster has the database 0 alone")
    user, at, hosts = parts.netloc.rpartition("@")
    first = parts._replace(netloc=f"{user}{at}{hosts.partition(',')[0]}", path="")
    cluster = RedisCluster.from_url(
        first.geturl(),
        startup_nodes=[ClusterNode(host, port) for host, port in addresses],
        # A redirection can send the commands of one server to another one.
        max_connections=2 * CONNECTIONS,
        require_full_coverage=False,
        # A slot that has moved is looked up alone: a new search for all would close connections in use.
        reinitialize_steps=0,
        **options,
    )
    # A command for each primary has one reply for each, which are not added up.
    cluster.result_callbacks.clear()
    # It has no argument for the parser. These are the arguments of all its connections.
    manager = cluster.nodes_manager
    manager.connection_kwargs["parser_class"] = LimitedParser
    for node in manager.startup_nodes.values():
        node.connection_kwargs["parser_class"] = LimitedParser
        _check_files(node.connection_class(**node.connection_kwargs))
    return cluster, f"cluster {_describe(addresses)}"


def _read_addresses(parts: SplitResult, default_port: int) -> list[Address]:
    hosts = parts.netloc.rpartition("@")[2].split(",")
    return [_read_address(host, default_port) for host in hosts]


def _read_address(text: str, default_port: int) -> Address:
    parts = urlsplit(f"//{text}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        # The error quotes the port: after a slash in a password, that is a part of the password.
        raise ValueError("it has no valid port, or its password has characters that must be percent-encoded") from None
    if not host or port == 0:
        raise ValueError("it has no host, or port 0")
    return host, port or default_port


def _describe(addresses: list[Address]) -> str:
    return ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


def _check(pool: ConnectionPool) -> None:
    """Create a connection, which is not opened. Otherwise a wrong option would fail every command."""
    _check_files(pool.connection_class(**pool.connection_kwargs))


def _check_files(connection: AbstractConnection) -> None:
    """Read the files of TLS. Raises ValueError if one cannot be used."""
    if isinstance(connection, SSLConnection):
        try:
            connection.ssl_context.get()
        except OSError as error:
            files = ", ".join(str(file) for name in _TLS_FILES if (file := getattr(connection.ssl_context, name)))
            raise ValueError(f"a file of its TLS options ({files}) cannot be used: {error}") from error


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
        await in_task()
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
        self._failure, self._cause = _describe_server(error), _find_cause(error)
        if isinstance(error, AskError | ClusterCrossSlotError):
            self._failure += f"; if it is a node of a cluster, use valkey+cluster://{self._name} as the store URL"
        return StoreError(f"The store {self._name} failed: {self._failure}.", cause=self._cause)


def _interpret(read: Callable[[Any], Result], reply: Any) -> Result:
    """What `read` makes of a reply. Raises WrongShape."""
    try:
        return read(reply)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise WrongShape(f"its reply to this command has another shape: {str(reply)[:80]}") from error


def _describe_server(error: Exception) -> str:
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
