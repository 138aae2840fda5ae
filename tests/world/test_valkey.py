"""The model of Valkey replies as a real server does, to every script of ours and to what other programs do."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from redis import Connection, Redis
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from doi_proxy.cache.coordination import MAX_ANNOUNCEMENTS
from doi_proxy.features.valkey import scripts
from doi_proxy.store.stored_entry import pack
from tests.cache.entries import NOW, entry, missing, proven, verified
from tests.table import table
from tests.world.loop import WorldLoop
from tests.world.valkey import Valkey
from tests.world.valkey_data import Failure
from tests.world.valkey_scripts import SCRIPTS

pytestmark = pytest.mark.valkey

NAMES: Final = ("10.1000/A", "10.1000/B", "10.1001/C")
SCOPES: Final = (*NAMES, "10.1000/", "10.1001/", "", "\tpurges", "\tnot-found")
#: Seconds by which all times move on. No sum of them is near an end, so the time that the test takes changes nothing.
STEP: Final = 90.0
#: Tokens a second: less than one in a minute.
RATE: Final = 0.01
#: Each side does a command, and returns its reply.
Side = Callable[..., Any]
Words = list[Any]


class Cursor:
    """A cursor of a reader of announcements. Each side has its own ids."""

    def __init__(self) -> None:
        self.of_side: dict[Side, bytes] = {}


def run(script: str, keys: list[str], *arguments: Any) -> Words:
    return ["EVAL", script, len(keys), *keys, *arguments]


def draw_put(dice: random.Random) -> Words:
    name = dice.choice(NAMES)
    kinds = (entry, lambda key, fetched_at: missing(key, fetched_at=fetched_at))
    one = dice.choice(kinds)(name, fetched_at=NOW + dice.choice((-500, 0, 500)))
    one = dice.choice((lambda it: it, verified, proven))(one)
    return run(
        scripts.PUT,
        [f"entry:{name}", "purges", "announcements"],
        dice.choice((pack(one), pack(one), pack(one)[:30], b"")),
        dice.choice((200_000, 10_000_000)),
        dice.choice(("", name)),
        dice.choice(("", 0.0, 45.0, 200.0)),
        dice.choice(("", NOW, NOW - 200)),
        NOW + dice.choice((60, 1_000)),
        name,
        f"{name.partition('/')[0]}/",
        "",
        dice.choice(("", NOW, NOW + 1_000_000)),
    )


def draw_damage(dice: random.Random) -> Words:
    """Another program writes to one of our keys."""
    name = dice.choice(NAMES)
    key = dice.choice((f"entry:{name}", f"lease:{name}", f"bucket:{name}", "purges", "announcements"))
    return dice.choice(
        (
            ["SET", key, dice.choice(("text", "5", ""))],
            ["RPUSH", key, "word"],
            ["DEL", key],
            ["PERSIST", key],
            ["HSET", key, "tokens", dice.choice(("inf", "-1", "nan", "text", "1e300"))],
            ["HSET", key, "at", dice.choice(("text", "1e13", "-inf")), "blocked_until", dice.choice(("1e13", "x"))],
            ["HSET", key, "server", "another one"],
            ["HSET", key, dice.choice(SCOPES), dice.choice(("text", "1e12", "0"))],
            ["XADD", key, "MAXLEN", "~", MAX_ANNOUNCEMENTS, "*", "key", dice.choice(SCOPES)],
            ["XADD", key, "*", *["word", "x"] * dice.choice((1, 9))],
            ["XADD", key, "*", "key", "x" * 9_000],
            [
                "XADD",
                key,
                dice.choice(("5-5", "9999999999999-0", "18446744073709551615-18446744073709551615")),
                "a",
                "b",
            ],
        )
    )


def draw_words(dice: random.Random, cursors: list[Cursor]) -> Words:
    name = dice.choice(NAMES)
    owner, milliseconds = dice.choice(("here", "there")), dice.choice((200_000, 1_000_000))
    lease, bucket = f"lease:{name}", f"bucket:{name}"
    read: Words = ["EVAL", scripts.READ_ANNOUNCEMENTS, 1, "announcements", dice.choice((*cursors, Cursor()))]
    draws: list[Callable[[], Words]] = [
        lambda: draw_put(dice),
        lambda: draw_damage(dice),
        lambda: run(scripts.PURGE, [f"entry:{name}", "purges", "announcements"], dice.choice(SCOPES)),
        lambda: run(scripts.ANNOUNCE, ["announcements"], dice.choice(SCOPES)),
        lambda: read,
        lambda: run(scripts.LEASE, [lease], owner, milliseconds),
        lambda: run(scripts.RENEW, [lease], owner, milliseconds),
        lambda: run(scripts.RELEASE, [lease], owner),
        lambda: run(scripts.TAKE, [bucket], dice.choice((0.0, RATE)), 5.0, dice.choice((0.0, 2.0, 9.0)), 1, 0, 0),
        lambda: run(
            scripts.TAKE, [bucket], RATE, 5.0, 0.0, dice.choice((1, 3)), int(dice.random() < 0.2), dice.choice((0, 1))
        ),
        lambda: run(scripts.BACK_OFF, [bucket], dice.choice((0.0, 300.0, 1e6))),
        lambda: ["GET", dice.choice((f"entry:{name}", lease, "purges"))],
        lambda: ["MGET", f"entry:{name}", lease, "purges"],
        lambda: ["SET", "probe", 1, "XX"],
        lambda: ["DBSIZE"],
        lambda: ["PTTL", "none"],
    ]
    return dice.choice(draws)()


def move_on(side: Side, seconds: float) -> None:
    """Every time of a server moves back, because its clock cannot be set."""
    for key in side("SCAN", 0, "COUNT", 10_000)[1]:
        if side("TYPE", key) == b"hash":
            pairs = side("HGETALL", key)
            for field, value in zip(pairs[::2], pairs[1::2], strict=True):
                is_time = field in (b"at", b"blocked_until", b"settles_until") or key == b"purges"
                if is_time and value.replace(b".", b"").isdigit():
                    side("HSET", key, field, repr(float(value) - seconds))
        if (left := side("PTTL", key)) > 0:
            side("PEXPIRE", key, left - int(seconds * 1000))


def dump(side: Side) -> dict[bytes, Any]:
    found = {}
    for key in side("SCAN", 0, "COUNT", 10_000)[1]:
        match side("TYPE", key):
            case b"string":
                found[key] = side("GET", key)
            case b"hash":
                pairs = side("HGETALL", key)
                fields = zip(pairs[::2], pairs[1::2], strict=True)
                found[key] = {
                    name: round_number(value, 60 * RATE if name == b"tokens" else 60.0) for name, value in fields
                }
            case b"stream":
                found[key] = [words for _, words in side("XRANGE", key, "-", "+")]
            case other:
                found[key] = other
    return found


def round_number(text: bytes, error: float = 60.0) -> Any:
    """A number with the error of a test that takes less than a minute."""
    try:
        return pytest.approx(float(text), abs=error, nan_ok=True)
    except ValueError:
        return text


class Servers:
    """A real server and the model, which do the same."""

    def __init__(self, client: Any) -> None:
        self._connection: Any = Connection(port=client.get_connection_kwargs()["port"], protocol=2)  # type: ignore[no-untyped-call]
        loop = WorldLoop()
        loop.close()
        # The clock of the system, as that of the real server.
        self.valkey = Valkey(loop.network, time.time)
        self.valkey.keys.run_id = client.info("server")["run_id"]

    def close(self) -> None:
        self._connection.disconnect()

    def real(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        try:
            return self._connection.read_response()
        except ResponseError as error:
            kinds = {OutOfMemoryError: "OOM", ReadOnlyError: "READONLY", NoScriptError: "NOSCRIPT"}
            return kinds.get(type(error), "WRONGTYPE" if "WRONGTYPE" in str(error) else "ERR")

    def model(self, *words: Any) -> Any:
        texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        reply = self.valkey.execute(texts)
        return str(reply).partition(" ")[0] if isinstance(reply, Failure) else reply

    def both(self, *words: Any) -> tuple[Any, Any]:
        """Do a command on both sides."""
        return tuple(self._do(side, words) for side in (self.real, self.model))

    @staticmethod
    def _do(side: Side, words: tuple[Any, ...]) -> Any:
        cursor = next((word for word in words if isinstance(word, Cursor)), None)
        if cursor is None:
            reply = side(*words)
            # Each side chooses an id by its own clock.
            return b"an id" if "*" in words and isinstance(reply, bytes) else reply
        reply = side(*(cursor.of_side.get(side, b"") if word is cursor else word for word in words))
        if isinstance(reply, list):
            cursor.of_side[side] = reply.pop(0)
        return reply

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


def is_same(real: Any, model: Any) -> bool:
    """Whether two replies are the same. The time that a caller of a bucket waits is about the same."""
    if isinstance(real, bytes) and isinstance(model, bytes) and real != model:
        return real[:1].isdigit() and model[:1].isdigit() and round_number(real) == float(model)
    return bool(real == model)


@table("seed", list(range(12)))
def test_commands_of_ours_and_of_other_programs_have_the_replies_of_a_real_server(servers: Servers, seed: int) -> None:
    dice, cursors = random.Random(seed), [Cursor(), Cursor(), Cursor()]
    servers.both("FLUSHDB")
    for _ in range(250):
        if dice.random() < 0.03:
            move_on(servers.real, STEP)
            move_on(servers.model, STEP)
        words = draw_words(dice, cursors)
        # A server without room, or one that became a replica.
        state = dice.choice((servers.set_full, servers.set_replica)) if dice.random() < 0.1 else None
        if state is not None:
            state(True)
        real, model = servers.both(*words)
        if state is not None:
            state(False)
        assert is_same(real, model), (words, real, model)
    assert dump(servers.real) == dump(servers.model)


def test_a_stream_is_trimmed_by_whole_nodes(servers: Servers) -> None:
    for number in range(MAX_ANNOUNCEMENTS + 300):
        servers.both("XADD", "stream", "MAXLEN", "~", MAX_ANNOUNCEMENTS, "*", "key", number)
    real, model = servers.both("XLEN", "stream")
    assert real == model


def test_a_script_is_known_by_its_hash_once_its_text_was_sent(servers: Servers) -> None:
    servers.real("SCRIPT", "FLUSH")
    for text in SCRIPTS:
        assert servers.both("EVALSHA", hashlib.sha1(text).hexdigest(), 0) == ("NOSCRIPT", "NOSCRIPT")
    servers.both("EVAL", scripts.ANNOUNCE, 1, "announcements", "")
    known = hashlib.sha1(scripts.ANNOUNCE.encode()).hexdigest()
    assert servers.both("EVALSHA", known, 1, "announcements", "") == (1, 1)
