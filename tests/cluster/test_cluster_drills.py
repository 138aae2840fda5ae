"""The black-box drills of the kit, with a Valkey cluster and with Sentinel as the store."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.processes import ROOT
from tests.features.valkey.valkey_cluster import running_cluster
from tests.features.valkey.valkey_sentinel import running_sentinels

pytestmark = [pytest.mark.nightly, pytest.mark.valkey, pytest.mark.kit]

#: The kit is not part of this repository. Checkouts that have it have it here.
DRILLS: Final = ROOT.parent / "shared" / "conformance" / "drills.py"
#: Seconds for one drill. The longest one waits for many timeouts.
DEADLINE: Final = 300.0
#: How often a drill is begun. The kit waits 20 s for the proxy to start, and a busy machine can need longer.
STARTS: Final = 3
SLOW_START: Final = "nothing listens on port"


@pytest.mark.skipif(not DRILLS.is_file(), reason=f"{DRILLS} does not exist: the kit is not beside this checkout")
def test_every_drill_passes_on_a_cluster_and_with_sentinels(tmp_path: Path) -> None:
    # The drills wait most of the time, so those of both stores run together.
    with (
        running_cluster(tmp_path) as cluster,
        running_sentinels(tmp_path) as sentinels,
        ThreadPoolExecutor(2) as pool,
    ):
        on_cluster = pool.submit(run_drills, cluster.url, cluster.flush)
        with_sentinels = pool.submit(run_drills, sentinels.url, sentinels.primary.client.flushall)
        results = on_cluster.result() + with_sentinels.result()
    print("", *results, sep="\n")
    assert [result for result in results if not result.startswith("ok ")] == []


def run_drills(store_url: str, flush: Callable[[], object]) -> list[str]:
    """Run every drill with an empty store. Returns the first line that each one prints."""
    results = []
    for line in run("--list").splitlines():
        for _ in range(STARTS):
            flush()
            output = run("--start", start_command(store_url), "--only", line.partition(":")[0])
            if SLOW_START not in output:
                break
        results.append(output.partition("\n")[0])
    assert results
    return results


def start_command(store_url: str) -> str:
    """The shell line that starts a proxy; the kit fills in {upstream} and {port}."""
    settings = f"DOI_PROXY_UPSTREAM_URL={{upstream}} DOI_PROXY_STORE_URL={shlex.quote(store_url)}"
    return f"env {settings} {shlex.quote(sys.executable)} -m doi_proxy serve --host 127.0.0.1 --port {{port}}"


def run(*arguments: str) -> str:
    """The output of the kit."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}
    command = [sys.executable, str(DRILLS), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    ).stdout
