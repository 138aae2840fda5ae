"""`doi-proxy demo`, `setup`, `check`, `gen-config` and `doctor`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.command import Command, CommandContext, add_format, add_server, set_usage
from doi_proxy.features.setup.doctor_command import add_doctor_arguments, doctor
from doi_proxy.features.setup.front_command import add_gen_config_arguments, gen_config
from doi_proxy.features.setup.setup_command import add_setup_arguments, setup


def _add_demo(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--port PORT]")


def _demo(_: CommandContext, namespace: argparse.Namespace) -> int:
    # Its modules are for no other command.
    from doi_proxy.features.setup.demo_command import run_demo

    return run_demo(namespace)


def _add_check(command: argparse.ArgumentParser) -> None:
    scope = command.add_mutually_exclusive_group()
    scope.add_argument("--offline", action="store_true", help="do not connect to the store and to the upstream")
    scope.add_argument(
        "--ready", action="store_true", help="only whether the running proxy is ready: exit status 0, else 1"
    )
    scope.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE",
        help="write an archive for troubleshooting: versions, masked settings, checks, store, status",
    )
    add_server(command, "with --ready or --bundle: the proxy; by default the one on this machine")
    add_format(command)


def _check(context: CommandContext, namespace: argparse.Namespace) -> int:
    if namespace.server is not None and not namespace.ready and namespace.bundle is None:
        raise ConfigurationError("--server is for a running proxy; add --ready or --bundle FILE")
    if namespace.ready:
        # Health checks run every few seconds, so this imports none of the checks.
        from doi_proxy.features.setup.readiness import check_ready

        return check_ready(context.settings, namespace.server)
    if namespace.bundle is not None:
        from doi_proxy.features.setup.support_bundle import write_support_bundle

        return write_support_bundle(context, namespace.bundle, namespace.server)
    from doi_proxy.features.setup.check_command import check_settings

    return check_settings(context, offline=namespace.offline, as_json=namespace.format == "json")


COMMANDS: Final = (
    Command("demo", _add_demo, _demo),
    Command("setup", add_setup_arguments, setup),
    Command("check", _add_check, _check),
    Command("gen-config", add_gen_config_arguments, lambda context, namespace: gen_config(namespace, context.settings)),
    Command("doctor", add_doctor_arguments, doctor),
)
