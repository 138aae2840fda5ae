"""Tests in real time do not sleep and have no short deadline, and no test chooses a port before a server binds it.

On a busy machine a process stands still for seconds. A test in virtual time may wait as it likes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.table import table

pytestmark = pytest.mark.repository

TESTS: Final = Path(__file__).parent
#: Markers of tests in real time.
MARKERS: Final = re.compile(r"\bmark\.(process|valkey|browser|real_time)\b")
#: Folders whose support modules serve such tests.
FOLDERS: Final = ("browser", "clients", "cluster", "features/valkey")
#: A deadline in seconds that a busy machine exceeds.
SHORT: Final = 2.0
_DEADLINE_NAMES: Final = re.compile("timeout|deadline|patience|quiet|short", re.IGNORECASE)
_DEADLINE_CALLS: Final = frozenset({"asyncio.wait_for", "asyncio.timeout"})

#: The files that may do so, and why.
EXCEPTIONS: Final[dict[str, str]] = {
    "browser/site.py": "sends requests to a real proxy until its limit is spent",
    "commands/test_output.py": "the log of the service, which would have its port, is on a full disk",
    "cluster/front_proxy.py": "nginx, Apache and Caddy report no port that they chose",
    "cluster/load.py": "pauses after a failed request, while a proxy is away",
    "cluster/processes.py": "looks every 20 ms whether a process answers",
    "cluster/test_cluster_admin.py": "the admin API has an address of its own, which is a setting",
    "cluster/test_cluster_native_listener.py": "UDP and TCP have the same port, which is a setting",
    "features/metrics/test_alerts.py": "Prometheus reports no port that it chose",
    "features/metrics/test_metrics.py": "Prometheus reports no port that it chose",
    "features/setup/test_front_files.py": "the front proxy needs a port on which nothing listens",
    "features/setup/test_support_bundle.py": "the deadline is one that passes: a server answers for ever",
    "features/valkey/test_cache_valkey_cluster.py": "the deadline is one that passes: a primary hangs",
    "features/valkey/test_cache_valkey_sentinel.py": "the deadline is one that passes; Sentinels know their ports",
    "features/valkey/test_cache_valkey_tls.py": "the deadline is one that passes: a server without TLS is silent",
    "features/valkey/test_hostile_server.py": "the deadline is one that passes: the server does not finish its reply",
    "features/valkey/test_server.py": "the deadline is one that passes: the server does not answer",
    "features/valkey/valkey_cluster.py": "the servers of a cluster know their ports before they start",
    "features/valkey/valkey_server.py": "Valkey has no port 0: that switches its port off",
    "hostile/clients.py": "a hostile client sends slowly",
    "proxy_client/test_exchange.py": "the deadline is one that passes: the answer does not end",
    "server/test_proxy_protocol.py": "nginx reports no port that it chose",
    "test_debian_package.py": "the unit of systemd has a port",
    "test_image.py": "the environment of the container has a port",
    "test_monitoring.py": "Alertmanager reports no port that it chose",
    "test_packaging.py": "Valkey has no port 0: that switches its port off",
    "test_tutorial.py": "the commands of the tutorial have ports",
}


def find_real_time(path: str, text: str) -> Iterator[str]:
    """The sleeps and short deadlines of a file in real time, and the ports that a file chooses, by line."""
    tree = ast.parse(text)
    marks = [
        node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    is_support = not Path(path).name.startswith("test_") and path.startswith(FOLDERS)
    is_real = is_support or any(MARKERS.search(ast.unparse(node)) for node in marks)
    for node in tree.body:
        yield from _find_in(node, is_real)


def _find_in(node: ast.AST, is_real: bool) -> Iterator[str]:
    decorators = getattr(node, "decorator_list", [])
    is_real = is_real or any(MARKERS.search(ast.unparse(decorator)) for decorator in decorators)
    match node:
        case ast.Call(func=function) if ast.unparse(function) == "time.sleep":
            yield f"{node.lineno} sleeps"
        case ast.Call(func=function, args=[ast.Constant(value=0)]) if ast.unparse(function) == "asyncio.sleep":
            pass
        case ast.Call(func=function) if is_real and ast.unparse(function) == "asyncio.sleep":
            yield f"{node.lineno} sleeps"
        case ast.Call(func=function) if ast.unparse(function) == "free_port":
            yield f"{node.lineno} chooses a port"
        case ast.Call(func=function, args=[*_, last]) if is_real and ast.unparse(function) in _DEADLINE_CALLS:
            yield from _find_short(node.lineno, last)
        case ast.keyword(arg=str(name), value=value) if is_real and _DEADLINE_NAMES.search(name):
            yield from _find_short(value.lineno, value)
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            if is_real and _DEADLINE_NAMES.search(ast.unparse(target)):
                yield from _find_short(node.lineno, value)
    for child in ast.iter_child_nodes(node):
        yield from _find_in(child, is_real)


def _find_short(line: int, value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and 0 < value.value < SHORT:
        yield f"{line} has a deadline of {value.value} s"


def test_no_other_file_sleeps_has_a_short_deadline_or_chooses_a_port() -> None:
    found = {}
    for file in sorted(TESTS.rglob("*.py")):
        path = file.relative_to(TESTS).as_posix()
        if lines := list(find_real_time(path, file.read_text("utf-8"))):
            found[path] = lines
    assert {path: lines for path, lines in found.items() if path not in EXCEPTIONS} == {}
    assert set(EXCEPTIONS) - set(found) == set()


_REAL: Final = "pytestmark = pytest.mark.process\n"


@table(
    ("text", "found"),
    [
        ("def f():\n    time.sleep(1)", ["2 sleeps"]),
        ("async def f():\n    await asyncio.sleep(1)", []),
        (_REAL + "async def f():\n    await asyncio.sleep(1)", ["3 sleeps"]),
        (_REAL + "async def f():\n    await asyncio.sleep(0)", []),
        ("@pytest.mark.real_time\nasync def f():\n    await asyncio.wait_for(a, 0.5)", ["3 has a deadline of 0.5 s"]),
        (_REAL + "PATIENCE: Final = 0.5", ["2 has a deadline of 0.5 s"]),
        (_REAL + "f(timeout=1)", ["2 has a deadline of 1 s"]),
        (_REAL + "f(timeout=10)", []),
        ("f(timeout=1)", []),
        ("def f():\n    port = free_port()", ["2 chooses a port"]),
    ],
)
def test_what_depends_on_real_time_is_seen(text: str, found: list[str]) -> None:
    assert list(find_real_time("test_a.py", text)) == found
