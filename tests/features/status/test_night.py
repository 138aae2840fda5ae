"""A night on call: for each fault, the first line of the log, /status and the events name the cause and what to do.

`python -m tests.features.status.test_night` prints what an operator reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from tests.fake_upstream import EVERY_NAME
from tests.world.world import World


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the night, and what names it."""

    name: str
    begin: Callable[[World, Path], None]
    #: Of the first line of the log: the cause and the remedy.
    line: str
    #: How the sentence of /status goes on after its first word.
    sentence: str
    #: The entry of the runbook, which is also the alert if it has the name of one.
    problem: str
    #: The kind, the cause and the sign of the event.
    event: tuple[str, str, str]
    settings: dict[str, Any] = field(default_factory=dict)


def of_upstream(kind: str, **options: Any) -> Callable[[World, Path], None]:
    return lambda world, _: world.upstream.fault(EVERY_NAME, kind, **options)


def stop_store(world: World, _: Path) -> None:
    world.valkey.stop()


def delete_store(world: World, folder: Path) -> None:
    for file in folder.glob("store.sqlite3*"):
        file.unlink()


def set_clock(world: World, _: Path) -> None:
    world.set_clock(-10_800)


def fail_reload(world: World, folder: Path) -> None:
    """A reload of a list of denied networks that cannot be read."""
    (folder / "deny.txt").write_text("no network\n")
    world.reload()


_DOWN: Final = "DoiProxyUpstreamBreakerOpen"
_SINCE: Final = r".* has given no usable answer since .*: "
_VALKEY: Final = {"store_url": "valkey://127.0.0.1:6379/0"}
FAULTS: Final = (
    Fault(
        "login portal",
        of_upstream("html"),
        r"upstream-bad-answer: .* page of HTML, .* login portal.*; open the address of the upstream from this",
        _SINCE + r"the answers cannot be read \(a page of HTML, from a login portal\?\)\. ",
        _DOWN,
        ("outage", "upstream-bad-answer", "page"),
    ),
    Fault(
        "portal that redirects",
        of_upstream("redirect", location="https://login.example/"),
        r"upstream-refused: .*redirects to another origin.*; open the address of the upstream from this",
        _SINCE + r"queries are refused \(a redirect to another site, from a login portal\?\)\. ",
        _DOWN,
        ("outage", "upstream-refused", "redirect"),
    ),
    Fault(
        "connections are reset",
        of_upstream("reset"),
        r"is down: upstream-unreachable: .*; wait, or look at the network and the firewall",
        _SINCE + "no connection",
        _DOWN,
        ("outage", "upstream-unreachable", ""),
    ),
    Fault(
        "upstream fails",
        of_upstream("status", status=503),
        r"is down: upstream-refused: .*HTTP status 503; wait: the upstream itself fails or is overloaded",
        # A moment later the breaker opens, and the sentence is that of an outage.
        r"Many names get no answer: queries are refused \(HTTP status 503\)",
        "DoiProxyCouldNotVerify",
        ("outage", "upstream-refused", "503"),
    ),
    Fault(
        "upstream blocks us",
        of_upstream("status", status=403),
        r"upstream-refused: .*HTTP status 403; the upstream may block this address: .* write to its operator",
        _SINCE + r"queries are refused \(HTTP status 403\)",
        _DOWN,
        ("outage", "upstream-refused", "403"),
    ),
    Fault(
        "upstream limits us",
        of_upstream("status", status=429, retry_after="60"),
        r"gets no queries for 60 s: upstream-refused: .*HTTP status 429; lower upstream_rate, or agree with the",
        r".* requested a pause: queries are refused \(HTTP status 429\)",
        "DoiProxyUpstreamPaused",
        ("pause", "upstream-refused", "429"),
    ),
    Fault(
        "upstream requests a password",
        of_upstream("status", status=401),
        r"upstream-refused: .*HTTP status 401; correct the user and the password in upstream_url",
        _SINCE + r"queries are refused \(HTTP status 401\)",
        _DOWN,
        ("outage", "upstream-refused", "401"),
    ),
    Fault(
        "portal by its own status",
        of_upstream("status", status=511),
        r"upstream-bad-answer: .*HTTP status was 511; open the address of the upstream from this",
        _SINCE + r"the answers cannot be read \(a page of HTML, from a login portal\?\)\. ",
        _DOWN,
        ("outage", "upstream-bad-answer", "page"),
    ),
    Fault(
        "upstream hangs",
        of_upstream("hang"),
        r"are refused: upstream-slow: 12 of 16 .* for more than 1 s, .* no token is missing; wait, or find out what",
        "The upstream is slow, and queries about new names wait",
        "DoiProxyUpstreamSlow",
        ("refusal", "upstream-slow", ""),
    ),
    Fault(
        "upstream takes 3 s",
        of_upstream("delay", seconds=3.0),
        r"are refused: upstream-slow: 12 of 16 .* for more than 1 s, .* no token is missing; wait, or find out what",
        "The upstream is slow, and queries about new names wait",
        "DoiProxyUpstreamSlow",
        ("refusal", "upstream-slow", ""),
    ),
    Fault(
        "too few places",
        of_upstream("delay", seconds=0.8),
        r"new names are refused: places-full: 2 of 2 .* no token is missing; raise upstream_max_concurrency",
        "All places for upstream queries are taken",
        "DoiProxyPlacesFull",
        ("refusal", "places-full", ""),
        {"upstream_max_concurrency": 2},
    ),
    Fault(
        "too few tokens",
        lambda *_: None,
        r"new names are refused: budget-spent: .* no token is left; limit the clients that need most",
        "The budget of upstream queries is used up",
        "DoiProxyBudgetSpent",
        ("refusal", "budget-spent", ""),
        {"upstream_rate": 1.0, "upstream_burst": 2},
    ),
    Fault(
        "store away",
        stop_store,
        "The store is down: .* failed; this process continues .*refused.* Do not restart doi-proxy before",
        r"The store fails: no connection\. ",
        "DoiProxyStoreFails",
        ("store", "store-unreachable", ""),
        _VALKEY,
    ),
    Fault(
        "file of the store deleted",
        delete_store,
        "was deleted while it was open. This process creates it .*; stop the service before you delete a store",
        r"The store can be read, but not written: the file was deleted\. ",
        "store",
        ("store", "store-deleted", ""),
    ),
    Fault(
        "clock set back",
        set_clock,
        "The clock was set back by 10[78][0-9][0-9] seconds; .* Check the time service of this machine",
        "The clock of this machine was set",
        "DoiProxyClockWrong",
        ("clock", "", ""),
    ),
    Fault(
        "reload fails",
        fail_reload,
        "client_deny_file: .*deny.txt:1:1: 'no network' is not a network such as ",
        "The last reload failed, and previous settings or files stay in force",
        "DoiProxyReloadFailed",
        ("reload-failed", "", ""),
    ),
)


@dataclass(frozen=True, slots=True)
class Read:
    """What an operator reads first, while new names are requested nine times a second, for half a minute at most."""

    line: str
    sentence: str
    problem: str
    event: tuple[str, str, str]


def read_first(fault: Fault, folder: Path) -> Read:
    """Play a fault."""
    usual = {"status_networks": "0.0.0.0/0, ::/0", "store_url": f"sqlite:///{folder}/store.sqlite3"}
    (folder / "deny.txt").write_text("")
    with World(**{**usual, "client_deny_file": folder / "deny.txt", **fault.settings}) as world:
        world.get("/10.5555/before")
        world.sleep(20)
        written = len(world.log)
        fault.begin(world, folder)
        clients = [world.client(f"192.0.{number}.7") for number in range(25)]
        sentence = problem = ""
        lines: list[str] = []
        events: list[dict[str, Any]] = []
        for number in range(270):
            clients[number % 25].ask(f"/10.5555/{number}", {"accept": "application/json"})
            world.sleep(1 / 9)
            if number % 9 == 8:
                status = world.get("/status?format=json").json
                if not problem:
                    summary = status["summary"]
                    sentence, problem = summary["sentence"], next(iter(summary["problems"]), "")
                events = [event for event in status["events"] if event["kind"] not in ("start", "reload")]
                lines = [line for line in world.log[written:] if line.startswith(("WARNING", "ERROR"))]
                if problem and events and lines:
                    break
        event = events[-1]
    return Read(lines[0], sentence, problem, (event["kind"], event["cause"], event["sign"]))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_first_that_an_operator_reads_is_the_cause_and_the_remedy(fault: Fault, tmp_path: Path) -> None:
    read = read_first(fault, tmp_path)
    assert re.search(fault.line, read.line)
    assert re.match(fault.sentence, read.sentence)
    assert (read.problem, read.event) == (fault.problem, fault.event)


def print_night() -> None:
    """Print what an operator reads about each fault."""
    for fault in FAULTS:
        with TemporaryDirectory() as folder:
            read = read_first(fault, Path(folder))
        print(fault.name, f"log: {read.line}", f"status: {read.sentence}", sep="\n  ")
        print(f"  problem: {read.problem}, event: {' '.join(read.event)}")


if __name__ == "__main__":
    print_night()
