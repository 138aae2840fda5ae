"""A real primary, its replica and three Sentinels on loopback, each a process that a test may stop or kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.features.valkey.valkey_cluster import Server, has_replica, wait_for
from tests.features.valkey.valkey_tls import Tls

#: The name of the primary at the Sentinels.
SERVICE: Final = "doi"
SENTINELS: Final = 3
#: Milliseconds after which the Sentinels replace a primary that does not answer.
_DOWN_AFTER: Final = 1_000
_FAILOVER_TIMEOUT: Final = 5_000
#: Sentinels that have to agree.
_QUORUM: Final = 2


class SentinelSet:
    """One primary with one replica, and the Sentinels that watch them."""

    def __init__(self, folder: Path, tls: Tls | None = None) -> None:
        self._running: list[Server] = []
        self._tls = tls
        try:
            self.primary = self._start(Server(folder, "--save", "", "--repl-diskless-sync-delay", "0", tls=tls))
            replication = ("--replicaof", f"127.0.0.1 {self.primary.port}", "--repl-diskless-sync-delay", "0")
            self.replica = self._start(Server(folder, "--save", "", *replication, tls=tls))
            wait_for(lambda: has_replica(self.primary), "the primary has its replica")
            self.sentinels = [self._start(self._sentinel(folder, number)) for number in range(SENTINELS)]
            wait_for(lambda: all(map(self._knows_all, self.sentinels)), "the Sentinels know each other")
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The store URL."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        if self._tls:
            return f"valkeys+sentinel://{hosts}/{SERVICE}{self._tls.url_options}"
        return f"valkey+sentinel://{hosts}/{SERVICE}"

    def wait_for_failover(self, without: Server | None = None) -> float:
        """Wait until the replica is the primary at every Sentinel, but for a lost one. Returns the seconds."""
        sentinels = [one for one in self.sentinels if one is not without]
        return wait_for(lambda: all(map(self._names_replica, sentinels)), "the replica is the primary")

    def wait_for_demotion(self) -> None:
        """Wait until the old primary is a replica."""
        wait_for(lambda: bool(self.primary.client.info("replication")["role"] == "slave"), "the old primary follows")

    def close(self) -> None:
        """End all processes."""
        for server in self._running:
            server.close()

    def _start(self, server: Server) -> Server:
        self._running.append(server)
        return server

    def _sentinel(self, folder: Path, number: int) -> Server:
        lines = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} {_QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {_DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} {_FAILOVER_TIMEOUT}",
        )
        file = folder / f"sentinel-{number}.conf"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Server(folder, str(file), "--sentinel", tls=self._tls)

    def _knows_all(self, sentinel: Server) -> bool:
        state = sentinel.client.sentinel_master(SERVICE)
        return bool(state["num-other-sentinels"] == SENTINELS - 1 and state["num-slaves"] == 1)

    def _names_replica(self, sentinel: Server) -> bool:
        answer = sentinel.client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        is_primary = self.replica.client.info("replication")["role"] == "master"
        return int(answer[1]) == self.replica.port and is_primary


@contextlib.contextmanager
def running_sentinels(folder: Path, tls: Tls | None = None) -> Iterator[SentinelSet]:
    """Sentinels for as long as a test needs them."""
    sentinels = SentinelSet(folder, tls)
    try:
        yield sentinels
    finally:
        sentinels.close()
