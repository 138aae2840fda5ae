"""`doi-proxy verify`: checks the proof of an answer without a network."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Command, CommandContext, require_libraries, set_usage
from doi_proxy.features.native.feature import Native
from doi_proxy.system.files import explain_failure, printable, read_regular
from handle_protocol.errors import HandleProtocolError


def _add_arguments(command: argparse.ArgumentParser) -> None:
    set_usage(command, "FILE [--upstream-bootstrap FILE] [--at TIME]")
    command.add_argument("file", metavar="FILE", type=Path, help="the answer of /api/proof/<name>")
    command.add_argument(
        "--at", metavar="TIME", type=_read_time, help="the time at which it must hold, such as 2026-01-31T12:00:00Z"
    )


def _read_time(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-01-31T12:00:00Z") from error
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _run(context: CommandContext, namespace: argparse.Namespace) -> int:
    require_libraries(Native)
    # These modules load the library of signatures.
    from doi_proxy.features.native.opening import read_root
    from handle_protocol.proof_document import MAX_DOCUMENT_BYTES, verify_document

    root = read_root(context.settings)
    if root is None:
        raise ConfigurationError(
            "--upstream-bootstrap FILE is missing: the answer of a handle API about 0.NA/0.NA (docs/native.md)"
        )
    if not root.is_verified:
        raise ConfigurationError(
            f"{context.settings.upstream_bootstrap} has no key of a server of the root, so it proves nothing"
        )
    at = time.time() if namespace.at is None else namespace.at
    try:
        text = verify_document(read_regular(namespace.file, MAX_DOCUMENT_BYTES), root, at)
        print("\n".join(map(printable, text.splitlines())))
    except OSError as error:
        print(f"doi-proxy: {namespace.file}: {explain_failure(error)}", file=sys.stderr)
    except HandleProtocolError as error:
        print(f"doi-proxy: {namespace.file}: {error.message}", file=sys.stderr)
    else:
        return 0
    return 1


COMMANDS: Final = (Command("verify", _add_arguments, _run),)
