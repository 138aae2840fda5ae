"""`doi-proxy demo`, `setup`, `check`, `gen-config`, `doctor` and `runbook`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Command, CommandContext, add_format, add_server, set_usage
from doi_proxy.features.setup.doctor_command import add_doctor_arguments, doctor
from doi_proxy.features.setup.front_files import add_gen_config_arguments, gen_config
from doi_proxy.features.setup.setup_command import add_setup_arguments, setup


def _demo(_: CommandContext, namespace: argparse.Namespace) -> int:
    # Its modules are for no other command.
    from doi_proxy.features.setup.demo_command import run_demo

    return run_demo(namespace)


def _add_runbook(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[ALERT] [--page NAME]")
    command.add_argument("entry", nargs="?", metavar="ALERT", help="print the entry of this alert or line of /status")
    command.add_argument("--page", metavar="NAME", help="print another page of the manual, such as operations or index")


def _print_runbook(_: CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.features.setup.runbook import print_runbook

    return print_runbook(namespace.entry, namespace.page)


def _add_check(command: argparse.ArgumentParser) -> None:
    scope = command.add_mutually_exclusive_group()
    scope.add_argument("--offline", action="store_true", help="do not connect to the store and to the upstream")
    scope.add_argument(
        "--ready", action="store_true", help="only check whether the running proxy is ready: exit status 0, else 1"
    )
    scope.add_argument(
        "--running",
        action="store_true",
        help="only print what a reload or restart of the running proxy would change: exit status 0 if nothing, else 1",
    )
    scope.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE",
        help="write an archive for troubleshooting: versions, masked settings, checks, store, status",
    )
    add_server(command, "with --ready, --running or --bundle: the proxy; by default the one on this machine")
    add_format(command)


def _check(context: CommandContext, namespace: argparse.Namespace) -> int:
    if namespace.server is not None and not (namespace.ready or namespace.running or namespace.bundle):
        raise ConfigurationError("--server is for a running proxy; add --ready, --running or --bundle FILE")
    if namespace.ready:
        # Health checks run every few seconds, so this imports none of the checks.
        from doi_proxy.features.setup.support_bundle import check_ready

        return check_ready(context.settings, namespace.server)
    if namespace.running:
        from doi_proxy.features.setup.check_command import compare_running

        return compare_running(context, namespace.server, as_json=namespace.format == "json")
    if namespace.bundle is not None:
        from doi_proxy.features.setup.support_bundle import write_support_bundle

        return write_support_bundle(context, namespace.bundle, namespace.server)
    from doi_proxy.features.setup.check_command import check_settings

    return check_settings(context, offline=namespace.offline, as_json=namespace.format == "json")


COMMANDS: Final = (
    Command("demo", lambda command: set_usage(command, "[--port PORT]"), _demo),
    Command("setup", add_setup_arguments, setup),
    Command("check", _add_check, _check),
    Command("gen-config", add_gen_config_arguments, lambda context, namespace: gen_config(namespace, context.settings)),
    Command("doctor", add_doctor_arguments, doctor),
    Command("runbook", _add_runbook, _print_runbook),
)
