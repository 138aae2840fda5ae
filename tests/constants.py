"""Other values of the program's named constants, for tests of the whole program. Tests of one part use its arguments.

    async with running(**{STALE_TIMEOUT: 0, "upstream_timeout": 5}) as proxy: ...

A constant is named by its module. Helpers that take settings accept constants among them. `python -m tests.constants
JSON serve ...` is `python -m doi_proxy serve ...` with such values, also where `tests/zygote.py` does not fork.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

STALE_TIMEOUT: Final = "doi_proxy.assembly.core.STALE_TIMEOUT"
RECHECK: Final = "doi_proxy.assembly.core.RECHECK"
FAILURE_TTL: Final = "doi_proxy.assembly.core.FAILURE_TTL"
STORE_TIMEOUT: Final = "doi_proxy.assembly.core.STORE_TIMEOUT"
#: Seconds that a query for a person waits for the budget.
QUEUE_TIMEOUT: Final = "doi_proxy.upstream.budget.QUEUE_TIMEOUT"
MOST_WAITING: Final = "doi_proxy.upstream.budget.MOST_OF_CLIENT"
#: Seconds for requests under way, and for idle connections, at the end.
GRACE: Final = "doi_proxy.server.http_server.GRACE"
LINGER: Final = "doi_proxy.server.http_server.LINGER"
#: Of connections.
HEAD_TIMEOUT: Final = "doi_proxy.server.connections.HEAD_TIMEOUT"
BODY_TIMEOUT: Final = "doi_proxy.server.connections.BODY_TIMEOUT"
WRITE_TIMEOUT: Final = "doi_proxy.server.connections.WRITE_TIMEOUT"
IDLE_TIMEOUT: Final = "doi_proxy.server.connections.IDLE_TIMEOUT"
PER_CLIENT: Final = "doi_proxy.server.connections.PER_CLIENT"
#: Of lists of names.
LIST_WAIT: Final = "doi_proxy.features.lists.batch.WAIT_TIMEOUT"
MAX_OPEN: Final = "doi_proxy.features.lists.feature.MAX_OPEN"
MAX_NAMES: Final = "doi_proxy.features.lists.feature.MAX_NAMES"
BYPASSES: Final = "doi_proxy.features.limits.feature.BYPASSES"


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The constants and the settings among these values. The name of a constant has dots."""
    constants = {name: value for name, value in values.items() if "." in name}
    return constants, {name: value for name, value in values.items() if name not in constants}


@contextmanager
def changed(constants: Mapping[str, Any]) -> Iterator[None]:
    """In this block, the constants have these values. Raises AttributeError for one that does not exist."""
    with ExitStack() as stack:
        for name, value in constants.items():
            stack.enter_context(patch(name, value))
        yield


def command(constants: Mapping[str, Any]) -> list[str]:
    """How a process with these constants starts. The words for the program follow."""
    if not constants:
        return [sys.executable, "-m", "doi_proxy"]
    return [sys.executable, "-m", "tests.constants", json.dumps(constants)]


def main() -> None:
    """Set the constants, and become the program."""
    with changed(json.loads(sys.argv.pop(1))):
        runpy.run_module("doi_proxy", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
