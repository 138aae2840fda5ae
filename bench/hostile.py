"""`python -m bench.hostile`: how long a hot name waits while records that mean harm are requested, in milliseconds.

A real server process answers from its store. Each hostile name is requested by three faces, the first time with nothing
parsed; beside it a second connection requests a hot name without a pause.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from bench.servers import HOST, plain_environment, program, served

HOT: Final = "10.1000/hot"
_MIB: Final = 2**20
_ROUNDS: Final = 3
_FACES: Final = (("/{}", "application/x-bibtex"), ("/{}?noredirect", "text/html"), ("/{}?action=showurls", "*/*"),
                 ("/api/handles/{}?pretty" + "&type=URL." * 190, "*/*"))  # fmt: skip
_ENDING: Final = "9999-01-01T00:00:00Z"

Values = list[dict[str, Any]]


def _value(index: int, type_: str, data: object) -> dict[str, Any]:
    content = {"format": "string", "value": data} if isinstance(data, str) else {"format": "x", "value": data}
    return {"index": index, "type": type_, "data": content}


def _filled(piece: str, size: int) -> str:
    return piece * (size // len(piece))


def _nested(depth: int, inner: object) -> object:
    for _ in range(depth):
        inner = [inner]
    return inner


def _locations(piece: str, values: int = 4) -> Values:
    xml = "<l>" + _filled(piece, 65_000) + "</l>"
    return [_value(n, "10320/loc", xml) for n in range(values)]


def records() -> dict[str, Values]:
    """The hostile records by what they hold; those that begin with "part" are included by another."""
    addresses = ",".join(["2001:db8::/32"] * 4_500)
    found: dict[str, Values] = {
        "20 addresses of mail": [_value(n, "EMAIL", "a@" + "." * 9_990 + "@") for n in range(20)],
        "a list of 490,000 zeros": [_value(1, "X", [0] * 490_000)],
        "a mebibyte of nested lists": [_value(1, "X", [[[]]] * 150_000)],
        "many nested lists": [_value(n, "X", [[[]]] * 3_000) for n in range(30)],
        "5,000 values": [_value(n, "URL.x", "http://a/" + "x" * 40) for n in range(5_000)],
        "5,000 pages of values": [_value(n, "10.1/é", "10.1/" + "é'" * 60) for n in range(2_500)],
        "a long list at depth 400": [_value(1, "X", _nested(400, [0] * 100_000))],
        "empty locations": _locations("<location/>"),
        "locations with links": _locations("<location href='http://a/é' rel='x' country='gb' language='x'/>"),
        "wide addresses": _locations(f"<location href='http://a/' addresses='{addresses}'/>"),
        "wrong addresses": _locations(f"<location addresses='{'1:2:3:4:5:6:7:8:9,' * 100}'/>"),
        "many attributes": _locations("<location " + " ".join(f"a{n}=''" for n in range(7_000)) + "/>"),
        "templates": _locations("<location rel='x' href_template='http://a/" + "{hdl}" * 600 + "'/>"),
        "100 small values": [_value(n, "10320/loc", "<l><location href='http://a/'/></l>") for n in range(4_000)],
        "entities": _locations("<location href='http://a/" + "&lt;" * 3_000 + "'/>"),
    }
    for n in range(19):
        found[f"part-{n}"] = _locations(f"<location href='http://a/' addresses='{addresses}'/>", 2)
    parts = " ".join(f"10.5555/part-{n}" for n in range(19))
    found["19 includes"] = [_value(1, "10320/loc", f"<l include='{parts}'/>")]
    return found


def _names() -> dict[str, str]:
    return {about: about if about.startswith("part") else f"bad-{n}" for n, about in enumerate(records())}


def _write_bundle(path: Path) -> None:
    names = _names()
    several = {HOT: [_value(1, "URL", "http://a/")], "0.NA/10.5555": [_value(1, "URL", "http://a/")]}
    several |= {f"10.5555/{names[about]}": values for about, values in records().items()}
    times = {"fetched": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "fresh_until": _ENDING}
    with path.open("w") as file:
        for name, values in several.items():
            file.write(json.dumps({"handle": name, "values": values, **times}, separators=(",", ":")) + "\n")


@contextmanager
def _hot(port: int) -> Iterator[Callable[[], list[float]]]:
    waits: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        connection = HTTPConnection(HOST, port, timeout=120)
        while not ended.is_set():
            began = time.perf_counter()
            connection.request("GET", f"/{HOT}")
            connection.getresponse().read()
            waits.append((time.perf_counter() - began) * 1000)
            ended.wait(0.001)

    def take() -> list[float]:
        taken = waits[:]
        waits.clear()
        return taken

    thread = threading.Thread(target=ask)
    thread.start()
    yield take
    ended.set()
    thread.join()


def main() -> None:
    """Measure and print a table: the record, the slowest of its answers and the longest wait of the hot name."""
    with tempfile.TemporaryDirectory() as folder:
        bundle, store = Path(folder, "hostile.ndjson"), f"sqlite:///{folder}/store.sqlite3"
        _write_bundle(bundle)
        environment = {"DOI_PROXY_STORE_URL": store, "DOI_PROXY_MODE": "sealed"}
        subprocess.run(
            [program("doi-proxy"), "cache", "import", "--no-checksum", str(bundle)],
            env=plain_environment() | environment,
            check=True,
        )
        command = [program("doi-proxy"), "serve", "--port"]
        with served(lambda port: [*command, str(port)], environment=environment) as server, _hot(server.port) as take:
            time.sleep(1)
            print(f"{'nothing':28} {'':>9} {max(take()):9.1f}")
            for about, name in _names().items():
                answers = [_ask(server.port, name, *face) for _ in range(_ROUNDS) for face in _FACES]
                time.sleep(0.05)
                slowest, bytes_ = max(one[0] for one in answers), max(one[1] for one in answers)
                print(f"{about:28} {slowest:9.1f} {max(take()):9.1f} {bytes_:12,} bytes")


def _ask(port: int, name: str, path: str, accept: str) -> tuple[float, int]:
    connection = HTTPConnection(HOST, port, timeout=120)
    began = time.perf_counter()
    connection.request("GET", path.format(f"10.5555/{name}"), headers={"Accept": accept})
    body = connection.getresponse().read()
    connection.close()
    return (time.perf_counter() - began) * 1000, len(body)


if __name__ == "__main__":
    main()
