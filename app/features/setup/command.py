"""`doi-proxy setup`, `check`, `gen-config`, `doctor` and `healthcheck`."""

from __future__ import annotations

import argparse
from typing import Final

from app.features.command import Command, CommandContext, add_nothing
from app.features.setup.doctor_command import add_doctor_arguments, doctor
from app.features.setup.front_command import add_gen_config_arguments, gen_config
from app.features.setup.setup_command import add_setup_arguments, setup


def _add_check(command: argparse.ArgumentParser) -> None:
    command.add_argument("--offline", action="store_true", help="do not connect to the store and to the upstream")
    command.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")


def _check(context: CommandContext, namespace: argparse.Namespace) -> int:
    from app.features.setup.check_command import check_settings

    return check_settings(context, offline=namespace.offline, as_json=namespace.as_json)


def _healthcheck(context: CommandContext, _: argparse.Namespace) -> int:
    from app.features.setup.healthcheck_command import healthcheck

    return healthcheck(context.settings)


COMMANDS: Final = (
    Command("setup", add_setup_arguments, setup),
    Command("check", _add_check, _check),
    Command("gen-config", add_gen_config_arguments, lambda context, namespace: gen_config(namespace, context.settings)),
    Command("doctor", add_doctor_arguments, doctor),
    Command("healthcheck", add_nothing, _healthcheck),
)
