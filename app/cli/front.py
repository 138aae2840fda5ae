"""`doi-proxy gen-config`: the configuration of a front proxy for these settings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from app.settings import Settings

#: The front proxies for which there is a configuration. app.setup.front_files writes them.
WRITTEN_KINDS: Final = ("nginx", "apache", "caddy")


def add_gen_config_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `doi-proxy gen-config`."""
    command.add_argument("kind", choices=WRITTEN_KINDS, help="front proxy")
    command.add_argument(
        "--backend",
        dest="backends",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="address of a doi-proxy; repeat it for several (default: the address of these settings)",
    )
    command.add_argument("--certificate", default="", metavar="FILE", help="certificate chain of the front proxy")
    command.add_argument("--certificate-key", default="", metavar="FILE", help="key of this certificate")
    command.add_argument("--cache", action="store_true", help="with an HTTP cache in the front proxy (nginx only)")


def gen_config(namespace: argparse.Namespace, settings: Settings) -> int:
    """Print a configuration. Raises ConfigurationError."""
    from app.setup.front import read_front
    from app.setup.front_files import write_front

    front = read_front(
        settings,
        backends=namespace.backends,
        certificate=namespace.certificate,
        key=namespace.certificate_key,
        cached=namespace.cache,
    )
    print(write_front(namespace.kind, front), end="")
    return 0
