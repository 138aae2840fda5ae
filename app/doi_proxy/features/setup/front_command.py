"""`doi-proxy gen-config`: the configuration of a front proxy or a systemd unit for these settings."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.sizing import SERVICE, SOCKET, TARGET
from doi_proxy.system.options import CONFIG_VARIABLE

if TYPE_CHECKING:
    from doi_proxy.system.options import Settings

#: The front proxies for which there is a configuration. doi_proxy.features.setup.front_files writes them.
FRONTS: Final = ("nginx", "apache", "caddy")
_UNITS: Final = {"systemd": SERVICE, "systemd-socket": SOCKET, "systemd-target": TARGET}
WRITTEN_KINDS: Final = (*FRONTS, *_UNITS)


def add_gen_config_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `doi-proxy gen-config`."""
    command.add_argument(
        "kind",
        choices=WRITTEN_KINDS,
        help="front proxy, or the unit of systemd, its socket, or its target",
    )
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
    text = _write_front(namespace, settings) if namespace.kind in FRONTS else _write_unit(namespace, settings)
    print(text, end="")
    return 0


def _write_unit(namespace: argparse.Namespace, settings: Settings) -> str:
    from doi_proxy.features.setup.sizing import CONFIG, find_program, write_units

    if namespace.backends or namespace.certificate or namespace.certificate_key or namespace.cache:
        raise ConfigurationError("--backend, --certificate, --certificate-key and --cache are for front proxies")
    config = namespace.config or Path(os.environ.get(CONFIG_VARIABLE) or CONFIG)
    return write_units(settings, config, find_program())[_UNITS[namespace.kind]]


def _write_front(namespace: argparse.Namespace, settings: Settings) -> str:
    from doi_proxy.features.setup.front_files import read_front, write_front

    front = read_front(
        settings,
        backends=namespace.backends,
        certificate=namespace.certificate,
        key=namespace.certificate_key,
        cached=namespace.cache,
    )
    return write_front(namespace.kind, front)
