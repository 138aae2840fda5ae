"""`doi-proxy drill`: counts for some seconds which answers of a running proxy would fail without the upstream."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from app.errors import ConfigurationError
from app.features.command import Command, CommandContext, set_usage, whole_number
from app.features.running_proxy import add_server, open_client
from app.system.interruption import interrupt_on_signals

#: Kinds of answers that no cached record could replace, and the one for which that is not known.
_NEEDED: Final = ("asked", "bypassed")
_SHARED: Final = "joined"
_MOST_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class DrillCount:
    """The names of a time, by what the upstream was for them."""

    #: Answered without a query, or with a record that is kept past its TTL.
    answered: int
    #: Answered by a query. Without the upstream, they would have failed.
    needed: int
    #: Answered by the query of another request. Those without an expired record would have failed.
    shared: int
    #: Not answered.
    failed: int

    @property
    def share(self) -> float | None:
        """The smallest share of the names that are answered without the upstream, 0 to 1. None without a name."""
        names = self.answered + self.needed + self.shared + self.failed
        return self.answered / names if names else None


def count_drill(before: Mapping[str, Any], after: Mapping[str, Any]) -> DrillCount:
    """What happened between two reads of `/status`."""
    answers = {kind: count - before["answers"].get(kind, 0) for kind, count in after["answers"].items()}
    needed, shared = sum(answers.get(kind, 0) for kind in _NEEDED), answers.get(_SHARED, 0)
    failed = sum(after["unverified"].values()) - sum(before["unverified"].values())
    return DrillCount(sum(answers.values()) - needed - shared, needed, shared, failed)


def _add_arguments(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--seconds N] [--refuse [--people]] [--json] [--server URL]")
    command.add_argument("--seconds", type=whole_number, default=60, metavar="N", help="how long; 60 by default")
    command.add_argument("--refuse", action="store_true", help="refuse the queries of lists and refreshes meanwhile")
    command.add_argument("--people", action="store_true", help="with --refuse: refuse the queries of people too")
    command.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")
    add_server(command)


def _run(context: CommandContext, namespace: argparse.Namespace) -> int:
    if not 0 < namespace.seconds <= _MOST_SECONDS:
        raise ConfigurationError(f"--seconds {namespace.seconds}: a drill lasts 1 to {_MOST_SECONDS} seconds")
    if namespace.people and not namespace.refuse:
        raise ConfigurationError("--people: this is for a drill that refuses queries; add --refuse")
    client = open_client(context.settings, namespace.server)
    # The refusal ends with the command, also at SIGTERM.
    interrupt_on_signals()
    before = client.status()
    if namespace.refuse:
        client.act("drill", {"seconds": namespace.seconds, "people": namespace.people})
    try:
        time.sleep(namespace.seconds)
    finally:
        if namespace.refuse:
            client.act("drill", {"seconds": 0})
    count = count_drill(before, client.status())
    print(json.dumps({**asdict(count), "share": count.share}) if namespace.as_json else _write(count))
    return 0


def _write(count: DrillCount) -> str:
    if count.share is None:
        return "No name was requested."
    return "\n".join(
        (
            f"answered without the upstream: {count.answered}",
            f"answered by a query: {count.needed}",
            f"answered by the query of another request: {count.shared}",
            f"not answered: {count.failed}",
            f"Without the upstream, about {100 * count.share:.1f} % of these look-ups are answered.",
        )
    )


COMMANDS: Final = (Command("drill", _add_arguments, _run),)
