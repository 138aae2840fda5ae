"""`doi-proxy explain`: asks a running proxy, or explains by the settings and the store."""

from __future__ import annotations

import argparse
import http.client
import shutil
import sys
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from doi_names.presentation import url_path
from doi_proxy.errors import DoiProxyError
from doi_proxy.features.feature import Command, CommandContext, add_format, add_server, read_argument, set_usage
from doi_proxy.proxy_client import ProxyFailure, may_read, open_client
from doi_proxy.system.files import print_json, printable

_ALONE_NOTE: Final = (
    "By the settings and the store. No running proxy was queried, so admission, back-off and budget are those of a new "
    "process."
)
_NOT_QUERIED: Final = (
    "To query a running proxy, give its token, DOI_PROXY_ADMIN_TOKEN_FILE, or set management_listen to a Unix socket."
)
_COLUMN: Final = 15


def _add_arguments(command: argparse.ArgumentParser) -> None:
    set_usage(
        command,
        "DOI [--client ADDRESS] [--accept TYPES] [--language TAGS] [--fetch] [--format text|json] [--server URL]",
    )
    command.add_argument("doi", metavar="DOI", help="a name, in any presentation form")
    command.add_argument("--client", metavar="ADDRESS", help="the address of the client; 127.0.0.1 by default")
    command.add_argument("--accept", metavar="TYPES", help="its header Accept; that of a browser by default")
    command.add_argument("--language", metavar="TAGS", help="its header Accept-Language")
    command.add_argument("--fetch", action="store_true", help="send a query if the answer needs one")
    add_format(command)
    add_server(command)


def _run(context: CommandContext, namespace: argparse.Namespace) -> int:
    asked = {name: getattr(namespace, name) for name in ("client", "accept", "language")}
    parameters = {name: value for name, value in asked.items() if value is not None}
    parameters |= {"doi": url_path(read_argument(namespace.doi))} | ({"fetch": "true"} if namespace.fetch else {})
    report, note = _ask(context, namespace.server, parameters)
    if namespace.format == "json":
        print_json(report)
        return 0
    print(note, file=sys.stderr)
    print(write_report(report, shutil.get_terminal_size().columns))
    return 0


def _ask(context: CommandContext, server: str | None, parameters: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The report of the running proxy, or of this process, and a sentence that says whose it is."""
    if server is None and not may_read(context.settings):
        return _explain_alone(context, parameters), f"{_ALONE_NOTE} {_NOT_QUERIED}"
    client = open_client(context.settings, server)
    try:
        return _require_report(client.label, client.explain(parameters)), f"As {client.label} decides now."
    except ProxyFailure as failure:
        # A proxy without an admin API takes the path for a name.
        if server is not None or failure.http_status not in (None, http.client.BAD_REQUEST):
            raise
    return _explain_alone(context, parameters), _ALONE_NOTE


def _require_report(label: str, document: dict[str, Any]) -> dict[str, Any]:
    """The answer of a server, if it is a report. Raises DoiProxyError."""
    # Another release of the program can have other decisions, and another program can listen there.
    from pydantic import ValidationError

    from doi_proxy.features.explain.explainer import ExplainReport

    try:
        ExplainReport.model_validate(document)
    except ValidationError as error:
        raise DoiProxyError(
            f"{label}: its answer is not a report of this release; check the URL, or use the doi-proxy of that release"
        ) from error
    return document


def _explain_alone(context: CommandContext, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Ask the application of the settings in this process."""
    from doi_proxy.features.admin.command import open_own

    # The answer to a query is stored, as that to any other.
    with open_own(context, read_only="fetch" not in parameters) as client:
        return client.explain(parameters)


def write_report(report: Mapping[str, Any], width: int) -> str:
    """A report as text: one paragraph for each decision, with the settings below it."""
    status = "the upstream decides" if report["status"] is None else f"status {report['status']}"
    to = "" if report["location"] is None else f" to {report['location']}"
    lines = [f"{report['doi']} for {report['client']}: {status}{to}"]
    for decision in report["decisions"]:
        lines += ["", f"{decision['decision']:{_COLUMN}}{decision['result']}"]
        settings = ", ".join(
            f"{name} = {'–' if value is None else value}" for name, value in decision["settings"].items()
        )
        for text in filter(None, (decision["reason"], settings)):
            indent = " " * _COLUMN
            for line in text.splitlines():
                lines += textwrap.wrap(line, max(width, 60), initial_indent=indent, subsequent_indent=indent)
    return "\n".join(map(printable, lines))


COMMANDS: Final = (Command("explain", _add_arguments, _run),)
