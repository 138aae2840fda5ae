"""Runs `doi-proxy status`: prints the state of a running proxy."""

from __future__ import annotations

import argparse
import html
import json
from typing import Final

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.feature import Command, CommandContext, add_format, add_server, set_usage
from doi_proxy.proxy_client import AdminClient, open_client


def _add_status(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--format text|json] [--server URL]")
    add_server(command)
    add_format(command)


def _status(context: CommandContext, namespace: argparse.Namespace) -> int:
    print(show_status(open_client(context.settings, namespace.server), as_json=namespace.format == "json"))
    return 0


def show_status(client: AdminClient, *, as_json: bool) -> str:
    """The proxy and its state. Raises DoiProxyError."""
    document = client.status()
    if as_json:
        return json.dumps(document)
    # Imported only if needed: --format json prints what arrives.
    from pydantic import ValidationError

    from doi_proxy.features.status.models import Status
    from doi_proxy.features.status.summary import write_text
    from doi_proxy.system.files import printable

    try:
        status = Status.model_validate(document)
    except ValidationError as error:
        raise DoiProxyError(
            f"{client.label}: its status is of another release; use --format json, or the doi-proxy of that release"
        ) from error
    # What another machine sends has no control characters, which a terminal would obey.
    return "\n".join((client.label, *(printable(html.unescape(line)) for line in write_text(status))))


COMMANDS: Final = (Command("status", _add_status, _status),)
