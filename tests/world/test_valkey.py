"""The model of Valkey replies as a real server does, to every command of ours and to what other programs do."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from redis import Connection, Redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from doi_proxy.cache.store import MAX_ANNOUNCEMENTS
from tests.table import table
from tests.world.loop import WorldLoop
from tests.world.valkey import Valkey
from tests.world.valkey_data import Failure

pytestmark = pytest.mark.valkey

#: One name for each kind of key, so a command meets data of each type.
KEYS: Final = ("entry", "purge", "counter", "feed")
#: Seconds by which all ends move on. No sum of them is near an end, so the time that the test takes changes nothing.
STEP: Final = 90.0
#: Each side does a command, and returns its reply.
Side = Callable[..., Any]
Words = list[Any]


def draw_words(dice: random.Random) -> Words:
    key = dice.choice(KEYS)
    draws: list[Words] = [
        ["SET", key, dice.choice(("text", "5", "")), "PX", dice.choice((200_000, 10_000_000))],
        ["SET", key, "text", "XX"],
        ["GET", key],
        ["DEL", key],
        ["INCR", key],
        ["EXPIRE", key, dice.choice((200, 1_000))],
        ["XADD", key, "MAXLEN", "~", MAX_ANNOUNCEMENTS, "*", "key", dice.choice(("10.1000/A", ""))],
        ["XADD", key, dice.choice(("5-5", "9999999999999-0", f"{2**64 - 1}-{2**64 - 1}")), "a", "b"],
        ["XRANGE", key, "5-5", "+", "COUNT", 1],
        ["XRANGE", key, "9999999999999-1", "+", "COUNT", 250],
        ["RPUSH", key, "word"],
        ["PERSIST", key],
        ["PTTL", "none"],
        ["DBSIZE"],
    ]
    return dice.choice(draws)


def move_on(side: Side, seconds: float) -> None:
    """Every end moves back, because the clock of a server cannot be set."""
    for key in side("SCAN", 0, "COUNT", 10_000)[1]:
        if (left := side("PTTL", key)) > 0:
            side("PEXPIRE", key, left - int(seconds * 1000))


def dump(side: Side) -> dict[bytes, Any]:
    found = {}
    for key in side("SCAN", 0, "COUNT", 10_000)[1]:
        match side("TYPE", key):
            case b"string":
                found[key] = side("GET", key)
            case b"stream":
                found[key] = [words for _, words in side("XRANGE", key, "-", "+")]
            case other:
                found[key] = other
    return found


class Servers:
    """A real server and the model, which do the same."""

    def __init__(self, client: Any) -> None:
        self._connection: Any = Connection(port=client.get_connection_kwargs()["port"], protocol=2)  # type: ignore[no-untyped-call]
        loop = WorldLoop()
        loop.close()
        # The clock of the system, as that of the real server.
        self.valkey = Valkey(loop.network, time.time)

    def close(self) -> None:
        self._connection.disconnect()

    def real(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        try:
            return self._connection.read_response()
        except ResponseError as error:
            kinds = {OutOfMemoryError: "OOM", ReadOnlyError: "READONLY"}
            return kinds.get(type(error), "WRONGTYPE" if "WRONGTYPE" in str(error) else "ERR")

    def model(self, *words: Any) -> Any:
        texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        reply = self.valkey.execute(texts)
        return str(reply).partition(" ")[0] if isinstance(reply, Failure) else reply

    def both(self, *words: Any) -> tuple[Any, Any]:
        """Do a command on both sides."""
        real = self.real(*words)
        # The server chooses an id by its clock; the model takes the same, for its own clock may be a millisecond on.
        chosen = [real if word == "*" and isinstance(real, bytes) else word for word in words]
        return real, self.model(*chosen)

    def set_full(self, is_full: bool) -> None:
        self.real("CONFIG", "SET", "maxmemory", "1" if is_full else "0")
        self.valkey.keys.is_full = is_full

    def set_replica(self, is_replica: bool) -> None:
        self.real("REPLICAOF", *(("127.0.0.1", "1") if is_replica else ("NO", "ONE")))
        self.valkey.keys.is_replica = is_replica


@pytest.fixture
def servers(own_valkey: Redis) -> Iterator[Servers]:
    both = Servers(own_valkey)
    yield both
    both.set_full(False)
    both.set_replica(False)
    both.close()


@table("seed", list(range(12)))
def test_commands_of_ours_and_of_other_programs_have_the_replies_of_a_real_server(servers: Servers, seed: int) -> None:
    dice = random.Random(seed)
    servers.both("FLUSHDB")
    for _ in range(250):
        if dice.random() < 0.03:
            move_on(servers.real, STEP)
            move_on(servers.model, STEP)
        words = draw_words(dice)
        # A server without room, or one that became a replica.
        state = dice.choice((servers.set_full, servers.set_replica)) if dice.random() < 0.1 else None
        if state is not None:
            state(True)
        real, model = servers.both(*words)
        if state is not None:
            state(False)
        assert real == model, words
    assert dump(servers.real) == dump(servers.model)


def test_a_stream_is_trimmed_by_whole_nodes(servers: Servers) -> None:
    for number in range(MAX_ANNOUNCEMENTS + 300):
        servers.both("XADD", "stream", "MAXLEN", "~", MAX_ANNOUNCEMENTS, "*", "key", number)
    lengths = [len(side("XRANGE", "stream", "-", "+")) for side in (servers.real, servers.model)]
    assert lengths[0] == lengths[1]
