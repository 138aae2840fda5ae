"""An attack on the tools for assistants over HTTP: one client makes every call."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

from bench.attacks.world import Checkout, Row, until, upstream
from bench.servers import HOST, end, free_port, plain_environment

_GREEDY: Final = "127.98.51.7"
_MODEST: Final = "127.0.113.9"
#: Names of this prefix are never answered.
_HANGING: Final = "10.6204"
#: Calls of one client at a time, and their lines.
_CALLS, _LINES = 8, 500
_REQUESTS: Final = 10
_PAUSE: Final = 1.0
_PATIENCE: Final = 60.0


def calls(checkout: Checkout) -> Iterator[Row]:
    """All calls of one client look up names that hang, beside the calls of another client."""
    for greedy in (0, _CALLS):
        with upstream() as url, _tools(checkout, url) as port:
            lines = [f"{_HANGING}/{number}" for number in range(_LINES)]
            threads = [
                threading.Thread(target=_call, args=(port, _GREEDY, "check_list", {"lines": lines}), daemon=True)
                for _ in range(greedy)
            ]
            for thread in threads:
                thread.start()
            time.sleep(_PAUSE)
            parsed = [_call(port, _MODEST, "parse", {"texts": ["10.1000/182"]}) for _ in range(_REQUESTS)]
            found = [_call(port, _MODEST, "resolve", {"name": "10.1000/182"}) for _ in range(_REQUESTS)]
        attack = f"{greedy} calls of one client for {_LINES} names that hang" if greedy else "control: no other calls"
        yield Row(
            f"{attack}: calls of another client that are answered, `parse` and `resolve`",
            f"{sum(parsed)} and {sum(found)} of {_REQUESTS}",
            all(parsed) and all(found),
        )


def _call(port: int, source: str, tool: str, arguments: dict[str, Any]) -> bool:
    """Whether a call has a result."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection = HTTPConnection(HOST, port, timeout=_PATIENCE, source_address=(source, 0))
    try:
        connection.request("POST", "/mcp", body=json.dumps(message), headers=headers)
        answer = connection.getresponse().read()
        return b"structuredContent" in answer
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def _tools(checkout: Checkout, upstream_url: str) -> Iterator[int]:
    """Run `doi-proxy mcp --http`. Yields its port."""
    port = free_port()
    command = [checkout.python, "-m", "app", "mcp", "--http", f"{HOST}:{port}", "--store-url", "memory:"]
    budget = ["--upstream-url", upstream_url, "--upstream-rate", "100000", "--upstream-burst", "100000"]
    process = subprocess.Popen(
        [*command, *budget],
        cwd=checkout.folder,
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: process.poll() is not None or _call(port, _MODEST, "parse", {"texts": ["x"]}), _PATIENCE)
        yield port
    finally:
        end(process)
