"""The library by itself: what its import loads, and the examples of its page in the manual."""

from __future__ import annotations

import asyncio
import doctest
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from handle_protocol.wire.site_value import Value
from tests.handle_protocol import tokens
from tests.handle_protocol.keys import dsa_key, rsa_key
from tests.handle_protocol.server import HandleServer, write_bootstrap

ROOT: Final = Path(__file__).resolve().parents[2]
#: Modules of ours that the client loads, and their lines.
MOST_MODULES: Final = 30
MOST_LINES: Final = 5_200
#: Prints the modules that the import of the client adds, but for those of the standard library: name and file.
_LOADED: Final = """
import json, sys
import handle_protocol.client
own = [name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names | {"__main__"}]
print(json.dumps({name: getattr(sys.modules[name], "__file__", None) for name in own}))
"""


@pytest.mark.process
def test_the_client_loads_few_modules_and_none_of_the_service() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    files: dict[str, str] = json.loads(done.stdout)
    ours = {name: file for name, file in files.items() if name.partition(".")[0] in ("handle_protocol", "doi_names")}
    libraries = {name.partition(".")[0] for name in files if "." not in name} - {"handle_protocol", "doi_names"}
    assert not [name for name in files if name.startswith("doi_proxy")]
    # The library of signatures is loaded with the first signature, and that of HTTP with the first tunnel.
    assert "msgspec" in libraries
    assert libraries.isdisjoint(
        {"aiohttp", "httptools", "cryptography", "lxml", "httpx", "fastapi", "pydantic", "uvicorn"}
    )
    assert len(ours) <= MOST_MODULES, sorted(ours)
    assert sum(len(Path(file).read_text("utf-8").splitlines()) for file in ours.values()) <= MOST_LINES


@contextmanager
def handle_system() -> Iterator[HandleServer]:
    """A server that is its own root, in a thread with a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(HandleServer().__aenter__(), loop).result()
    issued = tokens.certificate(dsa_key(), rsa_key())["data"]["value"]
    server.put_values("0.NA/10.5555", server.site_value(), Value(401, b"HS_CERT", issued.encode()))
    url = {"index": 1, "type": "URL", "data": {"format": "string", "value": "https://example.org/12345678"}}
    email = {"index": 2, "type": "EMAIL", "data": {"format": "string", "value": "desk@example.org"}}
    server.put("10.5555/12345678", [url, email])
    signed = [tokens.text(1, "DESC", "a measurement"), tokens.text(2, "EMAIL", "desk@example.org")]
    server.put(tokens.NAME, [*signed, tokens.signature(signed, dsa_key())])
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_the_examples_of_its_page_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/handle-protocol.md").read_text("utf-8")
    examples = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    monkeypatch.chdir(tmp_path)
    with handle_system() as server:
        (tmp_path / "root.json").write_bytes(write_bootstrap(server))
        # The only differences from the page: where the server is.
        examples = examples.replace("from_root(root)", "from_root(root, private_servers=True)")
        examples = examples.replace('service_at("192.0.2.1", 2641)', f'service_at("127.0.0.1", {server.port})')
        test = doctest.DocTestParser().get_doctest(examples, {}, "handle-protocol.md", None, 0)
        assert len(test.examples) > 20
        assert doctest.DocTestRunner().run(test).failed == 0
