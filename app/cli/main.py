"""The command `doi-proxy`: parses the command line and runs a command. Every error is one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from app import __version__
from app.assembly.settings import Settings, build, load
from app.assembly.settings.old_names import REMOVED, RENAMED
from app.assembly.settings.sources import SourcedValue, flag_of, read_values, variable
from app.cli.worker import collect_nothing, skip_httpx_command_line
from app.errors import ConfigurationError, DoiProxyError
from app.features.assistants.command import add_mcp_arguments, run_mcp
from app.features.cache_commands.command import add_cache_commands, run_cache
from app.features.lists.command import add_resolve_arguments, resolve
from app.features.parse.command import add_parse_arguments, parse_texts
from app.features.setup.doctor_command import add_doctor_arguments, doctor
from app.features.setup.front_command import add_gen_config_arguments, gen_config

#: The exit status for wrong arguments or settings.
WRONG_USE = 2


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage text of sixty flags."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USE, f"doi-proxy: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit status: 0 success, 1 failure, 2 wrong arguments or settings."""
    parser = create_parser()
    namespace = parser.parse_args(arguments)
    if not hasattr(namespace, "run"):
        parser.print_help()
        return WRONG_USE
    skip_httpx_command_line()
    try:
        return int(namespace.run(namespace))
    except ConfigurationError as error:
        print(f"doi-proxy: {error.message}", file=sys.stderr)
        return WRONG_USE
    except DoiProxyError as error:
        print(f"doi-proxy: {error.message}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 130


def settings_of(namespace: argparse.Namespace) -> Settings:
    """The settings of a command. Flags win over the environment and the file. Raises ConfigurationError."""
    return load(_flags(namespace), config=namespace.config)


def _flags(namespace: argparse.Namespace) -> dict[str, str | None]:
    return {name: getattr(namespace, name, None) for name in (*Settings.model_fields, *RENAMED, *REMOVED)}


def _values(namespace: argparse.Namespace) -> dict[str, SourcedValue]:
    return read_values(_flags(namespace), os.environ, namespace.config, Settings.model_fields)


def create_parser() -> argparse.ArgumentParser:
    """The parser of all commands. packaging/shell_files.py writes the completion scripts and the man page from it."""
    parser = _Parser(prog="doi-proxy", description="A self-hosted resolver for DOI names.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"doi-proxy {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_command(commands, "serve", _serve, "answer requests over HTTP")
    text = "resolve the names of lists: one row with a verdict for each name"
    add_resolve_arguments(_add_command(commands, "resolve", _resolve, text))
    _add_config(_add_command(commands, "config", _config, "print the settings in force, with secrets masked"))
    _add_command(
        commands, "healthcheck", _healthcheck, "check whether the running proxy is ready; exit status 0 if it is"
    )
    _add_check(_add_command(commands, "check", _check, "examine settings, files, store and upstream before a start"))
    text = "print the configuration of a front proxy, a systemd unit, a compose file or Kubernetes manifests"
    gen_config = _add_command(commands, "gen-config", _gen_config, text)
    add_gen_config_arguments(gen_config)
    add_doctor_arguments(
        _add_command(commands, "doctor", _doctor, "probe the front proxy and name what to change in it")
    )
    _add_status(_add_command(commands, "status", _status, "print what a running proxy is doing"))
    add_parse_arguments(
        _add_command(commands, "parse", _parse, "say what texts are: DOI names, handles, prefixes or none of them")
    )
    add_mcp_arguments(_add_command(commands, "mcp", _mcp, "offer assistants tools that check DOI names and references"))
    text = "export, import, warm, count, show, refresh or purge the records of the store"
    cache = commands.add_parser("cache", help=text, description=text, allow_abbrev=False)
    cache.set_defaults(run=_cache)
    add_cache_commands(cache, _add_settings)
    return parser


def _add_command(commands: argparse._SubParsersAction, name: str, run: object, text: str) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=run)
    _add_settings(command)
    return command


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    command.add_argument("--help-settings", action=_HelpSettings, help="print the flags of all settings and exit")
    _add_setting_flags(command, shown=False)


def _add_setting_flags(command: argparse.ArgumentParser, *, shown: bool) -> None:
    title, text = "settings", "each is also an environment variable and a line of the TOML file"
    group = command.add_argument_group(title, text) if shown else command
    for name, field in Settings.model_fields.items():
        text = f"{field.description} [{variable(name)}, default {field.default}]".replace("%", "%%")
        group.add_argument(flag_of(name), dest=name, metavar="VALUE", help=text if shown else argparse.SUPPRESS)
    for name in (*RENAMED, *REMOVED):
        group.add_argument(flag_of(name), dest=name, metavar="VALUE", help=argparse.SUPPRESS)


class _HelpSettings(argparse.Action):
    """Prints the flags of the settings, which the short help leaves out."""

    def __init__(self, option_strings: Sequence[str], help: str, **_: object) -> None:  # noqa: A002 - argparse's name
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        flags = argparse.ArgumentParser(parser.prog, f"{parser.prog} [settings]", add_help=False)
        _add_setting_flags(flags, shown=True)
        flags.print_help()
        parser.exit()


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sources", action="store_true", help="print where each setting was set, as a comment")
    command.add_argument(
        "--format", dest="form", choices=("env", "toml"), default="env", help="environment variables, or a TOML file"
    )


def _add_check(command: argparse.ArgumentParser) -> None:
    command.add_argument("--offline", action="store_true", help="do not connect to the store and to the upstream")
    command.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")


def _add_status(command: argparse.ArgumentParser) -> None:
    command.add_argument("--server", metavar="URL", help="the proxy; by default the one on this machine")
    command.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")


def _serve(namespace: argparse.Namespace) -> int:
    with collect_nothing():
        from app.cli.serve import serve  # the web framework takes half a second to import; other commands need none

    return serve(lambda: settings_of(namespace))


def _resolve(namespace: argparse.Namespace) -> int:
    return resolve(namespace, settings_of(namespace))


def _config(namespace: argparse.Namespace) -> int:
    from app.cli.show import show_settings

    values = _values(namespace)
    return show_settings(build(values), values, namespace.form, sources=namespace.sources)


def _check(namespace: argparse.Namespace) -> int:
    from app.features.setup.check_command import check

    return check(_values(namespace), offline=namespace.offline, as_json=namespace.as_json)


def _gen_config(namespace: argparse.Namespace) -> int:
    return gen_config(namespace, settings_of(namespace))


def _doctor(namespace: argparse.Namespace) -> int:
    return doctor(namespace, settings_of(namespace))


def _healthcheck(namespace: argparse.Namespace) -> int:
    from app.features.setup.healthcheck_command import healthcheck

    return healthcheck(settings_of(namespace))


def _status(namespace: argparse.Namespace) -> int:
    from app.features.admin.command import open_client, show_status

    return show_status(open_client(settings_of(namespace), namespace.server), as_json=namespace.as_json)


def _parse(namespace: argparse.Namespace) -> int:
    return parse_texts(namespace, settings_of(namespace))


def _mcp(namespace: argparse.Namespace) -> int:
    return run_mcp(namespace, settings_of(namespace))


def _cache(namespace: argparse.Namespace) -> int:
    return run_cache(namespace, settings_of(namespace))
