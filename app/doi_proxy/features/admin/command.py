"""Runs `doi-proxy cache show|refresh|purge`: by the admin API of a running proxy, or of these settings in this process.

Every call of the program builds this parser, so this module imports only what is fast to import.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import secrets
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final
from urllib.parse import unquote

from doi_names.errors import NotADOI
from doi_names.name import HandleName
from doi_names.presentation import url_path
from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features import feature
from doi_proxy.proxy_client import AdminClient, find_running, open_client
from doi_proxy.system.files import print_json

# --- The admin API in this process --------------------------------------------------------------------------------


class OwnAdmin(AdminClient):
    """The admin API of an application in this process."""

    label = "this process"

    def __init__(self, application: Any, token: str, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._application = application
        self._token = token
        self._run = run

    def _send(self, method: str, target: str, body: bytes | None = None) -> dict[str, Any]:
        status, answer = 0, bytearray()
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(b"authorization", f"Bearer {self._token}".encode()), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 0),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body or b"", "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            answer.extend(message.get("body", b""))

        self._run(self._application(scope, receive, send))
        document: dict[str, Any] = json.loads(answer)
        if status != 200:
            raise DoiProxyError(str(document.get("detail", document)))
        return document


@contextmanager
def open_own(
    context: feature.CommandContext, changes: Mapping[str, Any] | None = None, *, read_only: bool = False
) -> Iterator[AdminClient]:
    """The admin API of the settings, with changes, in this process. A failure of the store is raised at the end.

    Raises ConfigurationError and StoreError.
    """
    context.stores.require()
    token = secrets.token_urlsafe()
    own = {"management_listen": (), "access_log": "off", "admin_token": token, **(changes or {})}
    application = context.open_application(own, read_only=read_only)
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the line of the admin API about each action
    try:
        with asyncio.Runner() as runner, ExitStack() as stack:
            opened = runner.run(application.__aenter__())
            stack.push(lambda *error: runner.run(application.__aexit__(*error)))
            yield OwnAdmin(opened, token, runner.run)
    finally:
        logging.disable(before)


def _open_store(
    context: feature.CommandContext, server: str | None, *, read_only: bool = False
) -> AbstractContextManager[AdminClient]:
    """The admin API of `--server`, or that of this process."""
    if server is not None:
        return nullcontext(open_client(context.settings, server))
    return open_own(context, read_only=read_only)


# --- The commands -------------------------------------------------------------------------------------------------


#: What `--server` does for the commands on the store.
ON_STORE: Final = "use the admin API of the proxy at this URL instead of the store"


def _add_show(command: argparse.ArgumentParser) -> None:
    feature.set_usage(command, "[--server URL] NAME [NAME ...] | [--every-entry]")
    command.add_argument(
        "names", nargs="*", metavar="NAME", help="names, in any presentation form; without one, the store is counted"
    )
    command.add_argument(
        "--every-entry", action="store_true", help="count fresh, stale and negative entries even in a large store"
    )
    feature.add_server(command, ON_STORE)


def _show(context: feature.CommandContext, namespace: argparse.Namespace) -> int:
    if not namespace.names:
        if namespace.server is not None:
            raise ConfigurationError("--server needs names; for counts: doi-proxy status --format json --server URL")
        from doi_proxy.features.admin.purge import show_counts

        return asyncio.run(show_counts(context.stores, every_entry=namespace.every_entry))
    if namespace.every_entry:
        raise ConfigurationError("--every-entry is for the counts of the whole store; give no names")
    names = [feature.read_argument(text) for text in namespace.names]
    problems = []
    with _open_store(context, namespace.server, read_only=True) as client:
        for name in names:
            try:
                print_json(client.show(name))
            except DoiProxyError as error:
                problems.append(f"doi-proxy: {error.message}")
    # After the store is closed: if it failed, that error is raised first, and "no entry" is not known.
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _add_refresh(command: argparse.ArgumentParser) -> None:
    feature.set_usage(command, "[--server URL] NAME [NAME ...] | --prefix PREFIX [--limit N]")
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="the names of the cache under this prefix, oldest first")
    command.add_argument("--limit", type=feature.whole_number, metavar="N", help="fetch at most N names of the prefix")
    feature.add_server(command, ON_STORE)


def _refresh(context: feature.CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.features.admin.http import MAX_REFRESHED
    from doi_proxy.features.admin.purge import require_name

    if bool(namespace.names) == bool(namespace.prefix):
        raise ConfigurationError("refresh needs names, or --prefix")
    prefix, limit = feature.read_prefix(namespace.prefix), namespace.limit
    if limit is not None and not 1 <= limit <= MAX_REFRESHED:
        raise ConfigurationError(f"--limit {limit}: give a number from 1 to {MAX_REFRESHED}")
    try:
        names = [require_name(feature.read_argument(text)) for text in namespace.names]
    except NotADOI as error:
        raise ConfigurationError(error.message) from error
    settings = context.settings
    running = find_running(settings, namespace.server)
    # The share of the upstream's budget that a command takes: a service may query the upstream too.
    share = {"upstream_rate": settings.upstream_rate * 0.5, "upstream_burst": max(1.0, settings.upstream_burst * 0.5)}
    with open_own(context, share) if running is None else nullcontext(running) as client:
        if prefix is None:
            return max(_refresh_name(client, name) for name in names)
        report = client.act("refresh", {"prefix": prefix.text} | ({} if limit is None else {"limit": limit}))
    print(f"refreshed {report['refreshed']}, failed {report['failed']}, left out {report['left_out']}")
    if report["failure"] is not None:
        print(f"the last failure is {report['failure']}; the entries are unchanged", file=sys.stderr)
    elif report["left_out"]:
        print("run the command again for the rest; the oldest answers come first", file=sys.stderr)
    return 1 if report["failed"] else 0


def _refresh_name(client: AdminClient, name: HandleName) -> int:
    report = client.act("refresh", {"doi": url_path(name)})
    if report["refreshed"]:
        print(f"{name.text}: refreshed")
        return 0
    failure = report["failure"]
    reason = "a local record answers" if failure is None else f"could not verify ({failure})"
    print(f"{name.text}: {reason}; the entry is unchanged")
    return 1


def _add_purge(command: argparse.ArgumentParser) -> None:
    feature.set_usage(
        command, "[--server URL] [--soft] [--dry-run] NAME [NAME ...] | --prefix PREFIX | --negative | --all"
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="all names under this prefix, such as 10.1000")
    command.add_argument("--negative", action="store_true", help="all names that were not found, or have no values")
    command.add_argument("--all", dest="everything", action="store_true", help="all entries")
    feature.add_server(command, ON_STORE)
    command.add_argument("--soft", action="store_true", help="make the entries stale and keep them for outages")
    command.add_argument("--dry-run", action="store_true", help="count the entries, and change nothing")


def _purge(context: feature.CommandContext, namespace: argparse.Namespace) -> int:
    if sum([bool(namespace.names), bool(namespace.prefix), namespace.negative, namespace.everything]) != 1:
        raise ConfigurationError("purge needs names, or exactly one of --prefix, --negative and --all")
    prefix = feature.read_prefix(namespace.prefix)
    names = [feature.read_argument(text) for text in namespace.names]
    selections: list[dict[str, Any]] = [{"doi": url_path(name)} for name in names]
    if prefix is not None:
        selections = [{"prefix": prefix.text}]
    elif not selections:
        selections = [{"negative": True} if namespace.negative else {"all": True}]
    soft, dry_run = namespace.soft, namespace.dry_run
    with _open_store(context, namespace.server) as client:
        reports = [client.act("purge", {**selection, "soft": soft, "dry_run": dry_run}) for selection in selections]
    for name, report in zip(names, reports, strict=False):
        if not report["entries"]:
            print(f"{name.text}: no entry", file=sys.stderr)
    count = sum(report["entries"] for report in reports)
    print(f"{'would purge' if dry_run else 'made stale' if soft else 'purged'} {count}")
    if any(report["pending"] for report in reports):
        raise DoiProxyError(
            "The store failed. It and other instances get the purge once it is back; do not restart now."
        )
    return 0


COMMANDS: Final = (
    feature.Command("cache show", _add_show, _show),
    feature.Command("cache refresh", _add_refresh, _refresh),
    feature.Command("cache purge", _add_purge, _purge),
)
