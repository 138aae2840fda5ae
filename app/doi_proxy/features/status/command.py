"""Runs `doi-proxy status`: prints the state of a running proxy, once or again and again."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Final

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.feature import Command, CommandContext, add_format, add_server, set_usage
from doi_proxy.proxy_client import AdminClient, open_client

#: Moves to the upper left, and erases what follows (ECMA-48, 8.3.21 and 8.3.39).
_HOME, _ERASE = "\x1b[H", "\x1b[J"


def _add_status(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--watch] [--format text|json] [--server URL]")
    add_server(command)
    add_format(command)
    command.add_argument("--watch", action="store_true", help="print it again every 5 seconds, until Ctrl-C")


def _status(context: CommandContext, namespace: argparse.Namespace) -> int:
    client = open_client(context.settings, namespace.server)
    is_terminal = sys.stdout.isatty()
    while True:
        try:
            text = show_status(
                client, as_json=namespace.format == "json", has_colour=is_terminal and "NO_COLOR" not in os.environ
            )
        except DoiProxyError as error:
            if not namespace.watch:
                raise
            text = error.message
        # Erased line by line, the screen does not flicker.
        print(_HOME + text.replace("\n", "\x1b[K\n") + _ERASE if namespace.watch and is_terminal else text, flush=True)
        if not namespace.watch:
            return 0
        # Seconds between two prints with --watch.
        time.sleep(5.0)


def show_status(client: AdminClient, *, as_json: bool, has_colour: bool) -> str:
    """The proxy and its state. Raises DoiProxyError."""
    document = client.status()
    if as_json:
        return json.dumps(document)
    # Imported only if needed: --format json prints what arrives.
    from pydantic import ValidationError

    from doi_proxy.features.status.models import Status
    from doi_proxy.features.status.summary import StatusText, read_english

    try:
        status = Status.model_validate(document)
    except ValidationError as error:
        raise DoiProxyError(
            f"{client.label}: its status is of another release; use --format json, or the doi-proxy of that release"
        ) from error
    text = StatusText(read_english(), has_colour=has_colour).write(status)
    return f"{client.label}\n{text}"


COMMANDS: Final = (Command("status", _add_status, _status),)
